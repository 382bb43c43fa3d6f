module github.com/warrenmq/warren

go 1.26.0

require (
	github.com/rabbitmq/amqp091-go v1.16.0
	golang.org/x/sys v0.50.0
)
