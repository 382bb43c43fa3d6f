package conformance

import (
	"context"
	"os"
	"regexp"
	"testing"
	"time"
)

// TestBroker plays the transcripts against the broker that the environment names:
//
//	WARREN_CONFORMANCE_URI      amqp://guest:guest@127.0.0.1:5672/
//	WARREN_CONFORMANCE_HTTP     http://127.0.0.1:15672, optional
//	WARREN_CONFORMANCE_PRODUCT  rabbitmq or warren, if it is not what the broker announces
//	WARREN_CONFORMANCE_MATCH    a regular expression over file/case
func TestBroker(t *testing.T) {
	o := Options{URI: os.Getenv("WARREN_CONFORMANCE_URI"), HTTP: os.Getenv("WARREN_CONFORMANCE_HTTP"),
		Product: os.Getenv("WARREN_CONFORMANCE_PRODUCT")}
	if o.URI == "" {
		t.Skip("did not run: WARREN_CONFORMANCE_URI names no broker")
	}
	if match := os.Getenv("WARREN_CONFORMANCE_MATCH"); match != "" {
		o.Match = regexp.MustCompile(match)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	report, err := Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	report.Write(os.Stdout)
	if n := report.Count(Failed); n > 0 || len(report.Results) == 0 {
		t.Fatalf("%d of %d cases failed", n, len(report.Results))
	}
}

func TestTranscriptsParse(t *testing.T) {
	cases, err := Cases()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d cases", len(cases))
}
