package cli

import (
	"errors"
	"log/slog"

	"github.com/warrenmq/warren/config"
)

// openEngine joins the rooms of the broker into an engine.
func openEngine(cfg config.Config, version string, memory uint64, log *slog.Logger) (engine, error) {
	return nil, errors.New("this build has no broker in it yet")
}
