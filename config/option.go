package config

import (
	"fmt"
	"strings"
)

// Option is something that the command line and the environment can say. The flag --NAME and the variable WARREN_NAME, in capitals and
// with _ for -, take the same values.
type Option struct {
	Name string
	// Value is what stands for the value in a help text; Doc is one line about it.
	Value, Doc string
	// Aliases are further environment variables that mean the same, weaker than the option's own: RabbitMQ's.
	Aliases []string
	set     func(*draft, string) error
}

// Variable is the environment variable of an option.
func (o Option) Variable() string {
	return "WARREN_" + strings.ToUpper(strings.ReplaceAll(o.Name, "-", "_"))
}

// Options are all of them, in the order in which a help text shows them.
func Options() []Option {
	return []Option{
		{Name: "config", Value: "FILE", Doc: "configuration file in rabbitmq.conf's format, or a directory of *.conf files",
			Aliases: []string{"RABBITMQ_CONFIG_FILE"}, set: func(d *draft, v string) error { d.File = v; return nil }},
		{Name: "data-dir", Value: "DIR", Doc: "directory of the node's files (default ./warren-data)",
			set: func(d *draft, v string) error { d.DataDir = v; return nil }},
		{Name: "listen", Value: "ADDR", Doc: "AMQP address, several separated by commas, or none (default :5672)",
			set: func(d *draft, v string) error { return listInto(&d.AMQP, v) }},
		{Name: "tls-listen", Value: "ADDR", Doc: "AMQP address for TLS, several separated by commas, or none (default none)",
			set: func(d *draft, v string) error { return listInto(&d.AMQPS, v) }},
		{Name: "tls-cert", Value: "FILE", Doc: "certificate of the server, PEM", set: func(d *draft, v string) error { d.TLS.CertFile = v; return nil }},
		{Name: "tls-key", Value: "FILE", Doc: "private key of the certificate, PEM", set: func(d *draft, v string) error { d.TLS.KeyFile = v; return nil }},
		{Name: "tls-ca", Value: "FILE", Doc: "authorities that client certificates are checked against, PEM", set: func(d *draft, v string) error { d.TLS.CAFile = v; return nil }},
		{Name: "http", Value: "ADDR", Doc: "address of the management API, or none (default :15672)",
			set: func(d *draft, v string) error { return oneInto(&d.HTTP, v) }},
		{Name: "metrics", Value: "ADDR", Doc: "address of the Prometheus endpoint, or none (default :15692)",
			set: func(d *draft, v string) error { return oneInto(&d.Metrics, v) }},
		{Name: "ports-file", Value: "FILE", Doc: "write the addresses in use to FILE, as JSON, once all of them listen",
			set: func(d *draft, v string) error { d.PortsFile = v; return nil }},
		{Name: "log-level", Value: "LEVEL", Doc: "debug, info, notice, warning, error, critical or none (default info)",
			set: func(d *draft, v string) (err error) {
				d.Log.ConsoleLevel, err = parseLevel(v)
				d.Log.FileLevel = d.Log.ConsoleLevel
				return err
			}},
		{Name: "node-name", Value: "NAME", Doc: "name of the node in the management API (default warren@HOST)",
			Aliases: []string{"RABBITMQ_NODENAME"}, set: func(d *draft, v string) error { d.NodeName = v; return nil }},
		{Name: "cluster-listen", Value: "ADDR", Doc: "address for other nodes of a cluster, such as :25672, or none (default none)",
			set: func(d *draft, v string) error { return oneInto(&d.Cluster.Listen, v) }},
		{Name: "cluster-advertise", Value: "ADDR", Doc: "host and port at which they reach this node (default: that address, with this host's name)",
			set: func(d *draft, v string) error { return hostInto(&d.Cluster.Advertise, v) }},
		{Name: "cluster-secret-file", Value: "FILE", Doc: "file with the secret that all nodes of the cluster share",
			set: func(d *draft, v string) error { d.Cluster.SecretFile = v; return nil }},
		{Name: "join", Value: "ADDR", Doc: "become a member of the cluster that the node at this address belongs to, unless it is one already",
			set: func(d *draft, v string) error { return hostInto(&d.Cluster.Join, v) }},
		{Name: "default-user", Value: "NAME", Doc: "user made when the node starts without any (default guest)",
			Aliases: []string{"RABBITMQ_DEFAULT_USER"}, set: func(d *draft, v string) error { d.DefaultUser = v; return nil }},
		{Name: "default-pass", Value: "PASSWORD", Doc: "password of that user; the variable keeps it off the process list (default guest)",
			Aliases: []string{"RABBITMQ_DEFAULT_PASS"}, set: func(d *draft, v string) error { d.DefaultPass = v; return nil }},
		{Name: "default-vhost", Value: "NAME", Doc: "virtual host made with it (default /)",
			Aliases: []string{"RABBITMQ_DEFAULT_VHOST"}, set: func(d *draft, v string) error { d.DefaultVHost = v; return nil }},
		{Name: "memory-bound", Value: "BYTES", Doc: "most bytes of messages in memory (default 128MiB)",
			set: func(d *draft, v string) (err error) { d.MemoryBound, err = parseBytes(v); return err }},
		{Name: "product", Value: "NAME", Doc: "product announced to clients (default Warren)",
			Aliases: []string{"RABBITMQ_PRODUCT_NAME"}, set: func(d *draft, v string) error { d.Product = v; return nil }},
		{Name: "product-version", Value: "VERSION", Doc: "version announced to clients (default: that of the build)",
			Aliases: []string{"RABBITMQ_PRODUCT_VERSION"}, set: func(d *draft, v string) error { d.ProductVersion = v; return nil }},
	}
}

// listInto reads addresses separated by commas, or none.
func listInto(list *[]string, value string) error {
	*list = nil
	if value == "none" {
		return nil
	}
	for part := range strings.SplitSeq(value, ",") {
		address, err := parseAddress(strings.TrimSpace(part))
		if err != nil {
			return err
		}
		*list = append(*list, address)
	}
	return nil
}

// oneInto reads one address, or none.
func oneInto(p *string, value string) error {
	var list []string
	err := listInto(&list, value)
	if err == nil && len(list) > 1 {
		err = fmt.Errorf("%q is more than one address", value)
	}
	if *p = ""; err == nil && len(list) == 1 {
		*p = list[0]
	}
	return err
}
