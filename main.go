// Warren is an AMQP 0-9-1 message broker in one binary.
package main

import (
	"os"

	"github.com/warrenmq/warren/cli"
)

func main() { os.Exit(cli.Main()) }
