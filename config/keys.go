package config

import (
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// draft is a Config in the making, with what can only be put together when all settings are known.
type draft struct {
	Config
	amqp, amqps        map[string]string // by the last segment of listeners.tcp.NAME and listeners.ssl.NAME; nil: not mentioned
	mechanisms, tls    map[string]string // by the last segment of auth_mechanisms.N and ssl_options.versions.N
	http, metrics      endpoint
	httpSet, metricSet bool
	noAMQP, noAMQPS    bool
	noMetrics          bool
	tags               map[string]bool
}

// endpoint is an address whose two halves have keys of their own.
type endpoint struct{ ip, port string }

// key is one line of the table: a pattern whose segment * stands for any one segment, and what a value does.
// name is the segment that the * stood for, or empty.
type key struct {
	pattern string
	set     func(d *draft, name, value string) error
}

// keys are the settings that have an effect. The order is that of docs/configuration.md.
var keys = []key{
	{"listeners.tcp", func(d *draft, _, v string) error { d.noAMQP = true; return none(v) }},
	{"listeners.tcp.*", func(d *draft, name, v string) error { return addressInto(&d.amqp, name, v) }},
	{"listeners.ssl", func(d *draft, _, v string) error { d.noAMQPS = true; return none(v) }},
	{"listeners.ssl.*", func(d *draft, name, v string) error { return addressInto(&d.amqps, name, v) }},
	{"ssl_options.cacertfile", func(d *draft, _, v string) error { d.TLS.CAFile = v; return nil }},
	{"ssl_options.certfile", func(d *draft, _, v string) error { d.TLS.CertFile = v; return nil }},
	{"ssl_options.keyfile", func(d *draft, _, v string) error { d.TLS.KeyFile = v; return nil }},
	{"ssl_options.verify", func(d *draft, _, v string) error {
		_, err := parseChoice(v, "verify_none", "verify_peer")
		d.TLS.Verify = v == "verify_peer"
		return err
	}},
	{"ssl_options.fail_if_no_peer_cert", func(d *draft, _, v string) error { return boolInto(&d.TLS.RequireCert, v) }},
	{"ssl_options.versions.*", func(d *draft, name, v string) error {
		_, err := parseChoice(v, "tlsv1.2", "tlsv1.3")
		put(&d.tls, name, v)
		return err
	}},
	{"handshake_timeout", func(d *draft, _, v string) error { return millisInto(&d.HandshakeTimeout, v) }},
	{"ssl_handshake_timeout", func(d *draft, _, v string) error { return millisInto(&d.TLSHandshakeTimeout, v) }},
	{"tcp_listen_options.nodelay", func(d *draft, _, v string) error { return boolInto(&d.TCPNoDelay, v) }},
	{"tcp_listen_options.backlog", func(d *draft, _, v string) error { return intInto(&d.TCPBacklog, v) }},
	{"tcp_listen_options.sndbuf", func(d *draft, _, v string) error { return intInto(&d.TCPSendBuffer, v) }},
	{"tcp_listen_options.recbuf", func(d *draft, _, v string) error { return intInto(&d.TCPReceiveBuffer, v) }},

	{"heartbeat", func(d *draft, _, v string) error {
		n, err := parseCount(v, 0, math.MaxUint16)
		d.Heartbeat = time.Duration(n) * time.Second
		return err
	}},
	{"frame_max", func(d *draft, _, v string) error {
		n, err := parseCount(v, 0, math.MaxUint32)
		if err == nil && n != 0 && n < 4096 {
			err = fmt.Errorf("%s is below 4096, the smallest frame-max that AMQP 0-9-1 allows", v)
		}
		d.FrameMax = uint32(n)
		return err
	}},
	{"channel_max", channelMax},
	{"max_channels_per_connection", channelMax},
	{"max_message_size", func(d *draft, _, v string) (err error) {
		d.MaxMessageSize, err = parseBytes(v)
		if err == nil && d.MaxMessageSize > 512<<20 {
			err = fmt.Errorf("%s is above 536870912, the most that is possible", v)
		}
		return err
	}},
	{"connection_max", func(d *draft, _, v string) error { return boundInto(&d.ConnectionMax, v) }},
	{"max_connections", func(d *draft, _, v string) error { return boundInto(&d.ConnectionMax, v) }},
	{"channel_max_per_node", func(d *draft, _, v string) error { return boundInto(&d.ChannelMaxPerNode, v) }},
	{"consumer_max_per_channel", func(d *draft, _, v string) error { return boundInto(&d.ConsumerMaxPerChannel, v) }},
	{"cluster_queue_limit", func(d *draft, _, v string) error { return boundInto(&d.QueueMax, v) }},
	{"cluster_exchange_limit", func(d *draft, _, v string) error { return boundInto(&d.ExchangeMax, v) }},
	{"vhost_max", func(d *draft, _, v string) error { return boundInto(&d.VHostMax, v) }},
	{"consumer_timeout", func(d *draft, _, v string) error { return millisInto(&d.ConsumerTimeout, v) }},

	{"auth_mechanisms.*", func(d *draft, name, v string) error {
		put(&d.mechanisms, name, v)
		if v == "EXTERNAL" {
			return fmt.Errorf("EXTERNAL is not built yet; offered are PLAIN, AMQPLAIN and ANONYMOUS")
		}
		_, err := parseChoice(v, "PLAIN", "AMQPLAIN", "ANONYMOUS")
		return err
	}},
	{"auth_backends.*", func(_ *draft, _, v string) error {
		if v != "internal" && v != "rabbit_auth_backend_internal" {
			return fmt.Errorf("the authentication backend %s is not built yet; only internal is", v)
		}
		return nil
	}},
	{"anonymous_login_user", func(d *draft, _, v string) error {
		d.AnonymousUser = v
		if v == "none" {
			d.AnonymousUser = ""
		}
		return nil
	}},
	{"anonymous_login_pass", func(d *draft, _, v string) error { d.AnonymousPass = v; return nil }},
	{"loopback_users", func(d *draft, _, v string) error { clear(d.LoopbackUsers); return none(v) }},
	{"loopback_users.*", func(d *draft, name, v string) error {
		var only bool
		err := boolInto(&only, v)
		if delete(d.LoopbackUsers, name); only {
			d.LoopbackUsers[name] = true
		}
		return err
	}},
	{"default_user", func(d *draft, _, v string) error { d.DefaultUser = v; return nil }},
	{"default_pass", func(d *draft, _, v string) error { d.DefaultPass = v; return nil }},
	{"default_vhost", func(d *draft, _, v string) error { d.DefaultVHost = v; return nil }},
	{"default_permissions.configure", func(d *draft, _, v string) error { d.DefaultPermissions.Configure = v; return nil }},
	{"default_permissions.write", func(d *draft, _, v string) error { d.DefaultPermissions.Write = v; return nil }},
	{"default_permissions.read", func(d *draft, _, v string) error { d.DefaultPermissions.Read = v; return nil }},
	{"default_user_tags.*", func(d *draft, name, v string) error {
		var has bool
		err := boolInto(&has, v)
		if d.tags == nil {
			d.tags = map[string]bool{}
		}
		d.tags[name] = has
		return err
	}},
	{"default_queue_type", func(d *draft, _, v string) (err error) {
		v = strings.TrimSuffix(strings.TrimPrefix(v, "rabbit_"), "_queue")
		d.DefaultQueueType, err = parseChoice(v, "classic", "quorum", "stream")
		return err
	}},
	{"quorum_queue.initial_cluster_size", func(d *draft, _, v string) error {
		n, err := parseCount(v, 1, math.MaxUint16)
		d.QuorumGroupSize = int(n)
		return err
	}},
	{"quorum_queue.property_equivalence.relaxed_checks_on_redeclaration", func(d *draft, _, v string) error { return boolInto(&d.RelaxedRedeclaration, v) }},
	{"load_definitions", definitionsPath},
	{"management.load_definitions", definitionsPath},
	{"definitions.local.path", definitionsPath},
	{"definitions.import_backend", func(_ *draft, _, v string) error {
		if v != "local_filesystem" && v != "rabbit_definitions_import_local_filesystem" {
			return fmt.Errorf("definitions cannot be imported from %s; only local_filesystem is built", v)
		}
		return nil
	}},
	{"definitions.skip_if_unchanged", func(d *draft, _, v string) error { return boolInto(&d.Definitions.SkipIfUnchanged, v) }},
	{"definitions.hashing.algorithm", func(d *draft, _, v string) (err error) {
		d.Definitions.Hash, err = parseChoice(v, "sha", "sha224", "sha256", "sha384", "sha512")
		return err
	}},
	{"deprecated_features.permit.transient_nonexcl_queues", func(d *draft, _, v string) error { return boolInto(&d.PermitTransientQueues, v) }},
	{"deprecated_features.permit.global_qos", func(d *draft, _, v string) error { return boolInto(&d.PermitGlobalQoS, v) }},

	{"management.tcp.port", func(d *draft, _, v string) error { d.httpSet = true; return portInto(&d.http.port, v) }},
	{"management.tcp.ip", func(d *draft, _, v string) error { d.httpSet = true; return ipInto(&d.http.ip, v) }},
	{"management.listener.port", func(d *draft, _, v string) error { d.httpSet = true; return portInto(&d.http.port, v) }},
	{"management.listener.ip", func(d *draft, _, v string) error { d.httpSet = true; return ipInto(&d.http.ip, v) }},
	{"management.http.max_body_size", func(d *draft, _, v string) (err error) { d.HTTPMaxBody, err = parseBytes(v); return err }},
	{"collect_statistics_interval", func(d *draft, _, v string) error { return millisInto(&d.StatisticsInterval, v) }},
	{"prometheus.tcp.listener", func(d *draft, _, v string) error { d.noMetrics = true; return none(v) }},
	{"prometheus.tcp.port", func(d *draft, _, v string) error { d.metricSet = true; return portInto(&d.metrics.port, v) }},
	{"prometheus.tcp.ip", func(d *draft, _, v string) error { d.metricSet = true; return ipInto(&d.metrics.ip, v) }},
	{"prometheus.authentication.enabled", func(d *draft, _, v string) error { return boolInto(&d.MetricsAuth, v) }},
	{"prometheus.return_per_object_metrics", func(d *draft, _, v string) error { return boolInto(&d.MetricsPerObject, v) }},

	{"vm_memory_high_watermark.relative", func(d *draft, _, v string) error { return relativeInto(&d.MemoryWatermark, v) }},
	{"vm_memory_high_watermark.absolute", func(d *draft, _, v string) error { return absoluteInto(&d.MemoryWatermark, v) }},
	{"total_memory_available_override_value", func(d *draft, _, v string) (err error) { d.MemoryTotal, err = parseBytes(v); return err }},
	{"disk_free_limit.absolute", func(d *draft, _, v string) error { return absoluteInto(&d.DiskFreeLimit, v) }},
	{"disk_free_limit.relative", func(d *draft, _, v string) error { return relativeInto(&d.DiskFreeLimit, v) }},

	{"log.console", func(d *draft, _, v string) error { return boolInto(&d.Log.Console, v) }},
	{"log.console.level", func(d *draft, _, v string) (err error) { d.Log.ConsoleLevel, err = parseLevel(v); return err }},
	{"log.console.formatter", func(d *draft, _, v string) error { return formatInto(&d.Log.ConsoleJSON, v) }},
	{"log.dir", func(d *draft, _, v string) error { d.Log.Dir = v; return nil }},
	{"log.file", func(d *draft, _, v string) error {
		if d.Log.File = v; v == "false" {
			d.Log.File = ""
		}
		return nil
	}},
	{"log.file.level", func(d *draft, _, v string) (err error) { d.Log.FileLevel, err = parseLevel(v); return err }},
	{"log.file.formatter", func(d *draft, _, v string) error { return formatInto(&d.Log.FileJSON, v) }},

	{"cluster_name", func(d *draft, _, v string) error { d.ClusterName = v; return nil }},
	{"product.name", func(d *draft, _, v string) error { d.Product = v; return nil }},
	{"product.version", func(d *draft, _, v string) error { d.ProductVersion = v; return nil }},
	{"warren.product", func(d *draft, _, v string) error { d.Product = v; return nil }},
	{"warren.version", func(d *draft, _, v string) error { d.ProductVersion = v; return nil }},
	{"warren.data_dir", func(d *draft, _, v string) error { d.DataDir = v; return nil }},
	{"warren.node_name", func(d *draft, _, v string) error { d.NodeName = v; return nil }},
	{"warren.ports_file", func(d *draft, _, v string) error { d.PortsFile = v; return nil }},
	{"warren.memory_bound", func(d *draft, _, v string) (err error) { d.MemoryBound, err = parseBytes(v); return err }},
	{"warren.flush_at", func(d *draft, _, v string) (err error) { d.FlushAt, err = parseBytes(v); return err }},
	{"warren.journal_max", func(d *draft, _, v string) (err error) { d.JournalMax, err = parseBytes(v); return err }},
	{"warren.disk_ballast", func(d *draft, _, v string) (err error) { d.DiskBallast, err = parseBytes(v); return err }},
	{"warren.cluster.listen", func(d *draft, _, v string) error { return oneInto(&d.Cluster.Listen, v) }},
	{"warren.cluster.advertise", func(d *draft, _, v string) error { return hostInto(&d.Cluster.Advertise, v) }},
	{"warren.cluster.secret_file", func(d *draft, _, v string) error { d.Cluster.SecretFile = v; return nil }},
	{"warren.cluster.join", func(d *draft, _, v string) error { return hostInto(&d.Cluster.Join, v) }},
	{"warren.cluster.ssl_options.cacertfile", func(d *draft, _, v string) error { d.Cluster.TLS.CAFile = v; return nil }},
	{"warren.cluster.ssl_options.certfile", func(d *draft, _, v string) error { d.Cluster.TLS.CertFile = v; return nil }},
	{"warren.cluster.ssl_options.keyfile", func(d *draft, _, v string) error { d.Cluster.TLS.KeyFile = v; return nil }},
	{"warren.memory_limit", func(d *draft, _, v string) (err error) { d.MemoryLimit, err = parseBytes(v); return err }},
}

func definitionsPath(d *draft, _, v string) error { d.Definitions.Path = v; return nil }

// lookUp finds the key that a name's segments spell, and the segment that its * stands for.
func lookUp(segments []string) (k key, name string, found bool) {
	for _, k := range keys {
		if name, ok := match(k.pattern, segments); ok {
			return k, name, true
		}
	}
	return key{}, "", false
}

// match compares a pattern with a name's segments and returns the segment under the first *.
func match(pattern string, segments []string) (name string, ok bool) {
	for i, segment := range segments {
		var want string
		var more bool
		want, pattern, more = strings.Cut(pattern, ".")
		if want == "*" && name == "" {
			name = segment
		} else if want != "*" && want != segment {
			return "", false
		}
		if more != (i+1 < len(segments)) {
			return "", false
		}
	}
	return name, true
}

// finish puts together what several settings say, and forgets that they were said.
func (d *draft) finish() {
	if d.amqp != nil || d.noAMQP {
		d.AMQP = inOrder(d.amqp)
	}
	if d.amqps != nil || d.noAMQPS {
		d.AMQPS = inOrder(d.amqps)
	}
	if d.mechanisms != nil {
		d.AuthMechanisms = inOrder(d.mechanisms)
	}
	if d.tls != nil {
		d.TLS.Versions = inOrder(d.tls)
	}
	if d.httpSet {
		d.HTTP = d.http.over(d.HTTP)
	}
	if d.metricSet {
		d.Metrics = d.metrics.over(d.Metrics)
	}
	if d.noMetrics {
		d.Metrics = ""
	}
	if d.tags != nil {
		d.DefaultUserTags = slices.DeleteFunc(d.DefaultUserTags, func(tag string) bool { has, said := d.tags[tag]; return said && !has })
		for tag, has := range d.tags {
			if has && !slices.Contains(d.DefaultUserTags, tag) {
				d.DefaultUserTags = append(d.DefaultUserTags, tag)
			}
		}
		slices.Sort(d.DefaultUserTags)
	}
	d.amqp, d.amqps, d.mechanisms, d.tls, d.tags = nil, nil, nil, nil, nil
	d.noAMQP, d.noAMQPS, d.noMetrics, d.httpSet, d.metricSet = false, false, false, false, false
}

// over replaces the halves of an address that were given.
func (e endpoint) over(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port = "", address
	}
	if e.ip != "" {
		host = e.ip
	}
	if e.port != "" {
		port = e.port
	}
	return net.JoinHostPort(host, port)
}

// inOrder are the values of a numbered or named list: default first, then numbers, then names.
func inOrder(m map[string]string) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	rank := func(name string) int {
		if n, err := strconv.Atoi(name); err == nil {
			return n
		}
		if name == "default" {
			return -1
		}
		return math.MaxInt
	}
	slices.SortFunc(names, func(a, b string) int {
		if ra, rb := rank(a), rank(b); ra != rb {
			if ra < rb {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	var values []string
	for _, name := range names {
		values = append(values, m[name])
	}
	return values
}

func channelMax(d *draft, _, v string) error {
	n, err := parseCount(v, 0, math.MaxUint16)
	d.ChannelMax = uint16(n)
	return err
}

// none accepts the only value that a key above a list of listeners or users can have.
func none(value string) error {
	if value != "none" {
		return fmt.Errorf("%q is not none, the only value of this key; entries have keys below it", value)
	}
	return nil
}

func put(m *map[string]string, name, value string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[name] = value
}

func addressInto(m *map[string]string, name, value string) error {
	address, err := parseAddress(value)
	put(m, name, address)
	return err
}

func boolInto(p *bool, value string) (err error) { *p, err = parseBool(value); return err }

func intInto(p *int, value string) error {
	n, err := parseCount(value, 0, math.MaxInt32)
	*p = int(n)
	return err
}

func boundInto(p *int, value string) (err error) { *p, err = parseBound(value); return err }

func millisInto(p *time.Duration, value string) (err error) { *p, err = parseMillis(value); return err }

func portInto(p *string, value string) error {
	_, err := parseCount(value, 0, math.MaxUint16)
	*p = value
	return err
}

func ipInto(p *string, value string) error {
	if net.ParseIP(value) == nil {
		return fmt.Errorf("%q is no IP address", value)
	}
	*p = value
	return nil
}

// hostInto reads the address of another host, with a name that can be dialled.
func hostInto(p *string, value string) error {
	host, port, err := net.SplitHostPort(value)
	if err == nil && (host == "" || port == "") {
		err = fmt.Errorf("%q is not host:port", value)
	}
	*p = value
	return err
}

func relativeInto(t *Threshold, value string) error {
	f, err := strconv.ParseFloat(value, 64)
	if err != nil || !(f >= 0 && f <= 1000) {
		return fmt.Errorf("%q is no part of the memory available; write for example 0.6", value)
	}
	*t = Threshold{Relative: f}
	return nil
}

func absoluteInto(t *Threshold, value string) error {
	n, err := parseBytes(value)
	*t = Threshold{Absolute: n}
	return err
}

func formatInto(json *bool, value string) error {
	_, err := parseChoice(value, "plaintext", "json")
	*json = value == "json"
	return err
}
