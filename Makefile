# make run      build Warren and start one node, with its data in ./warren-data
# make cluster  build Warren and run three nodes on this machine, with their data in ./warren-cluster
# make test     run all tests that this machine can run; the list at the end says what was left out
# make bench    measure Warren against RabbitMQ; W="transient fanout" measures a part
# make build    build/warren
# make fmt      format the Go code
#
# Only Go is needed for run, cluster, build and fmt. docs/testing.md tells about the tests.

export CGO_ENABLED = 0

.PHONY: build run cluster test bench fmt clean

build:
	go build -trimpath -o build/warren .

run: build
	exec build/warren server --data-dir ./warren-data

cluster: build
	exec build/warren cluster try

test:
	go run ./test/all $(PARTS)

bench:
	go run ./bench/compare $(W)

fmt:
	go fmt ./...

clean:
	rm -rf build
