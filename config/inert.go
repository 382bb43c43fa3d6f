package config

import "strings"

// inert are keys that RabbitMQ knows and that change nothing here: they tune parts that Warren does not have, or features that are not
// built yet and whose absence opens nothing. A pattern that ends in .** stands for everything below. Source: RabbitMQ's rabbit.schema and
// those of its plugins.
var inert = []string{
	"advanced.**", "raft.**", "sysmon_handler.**", "mnesia_table_loading_retry_limit", "mnesia_table_loading_retry_timeout",
	"metadata_store.**", "khepri_default_timeout", "khepri_leader_wait_retry_timeout", "khepri_leader_wait_retry_limit",
	"num_acceptors.*", "distribution.**", "net_ticktime", "inet_default_connect_options.**", "erlang.**",
	"tcp_listen_options.keepalive", "tcp_listen_options.linger.*", "tcp_listen_options.exit_on_close", "tcp_listen_options.buffer",
	"tcp_listen_options.delay_send", "tcp_listen_options.high_watermark", "tcp_listen_options.low_watermark", "tcp_listen_options.packet",
	"tcp_listen_options.send_timeout", "tcp_listen_options.send_timeout_close", "tcp_listen_options.high_msgq_watermark",
	"reverse_dns_lookups", "initial_frame_max", "session_max_per_connection", "link_max_per_session",
	"ssl_options.depth", "ssl_options.ciphers.*", "ssl_options.honor_cipher_order", "ssl_options.honor_ecc_order",
	"ssl_options.client_renegotiation", "ssl_options.secure_renegotiate", "ssl_options.reuse_sessions", "ssl_options.dhfile",
	"ssl_options.log_level", "ssl_options.bypass_pem_cache", "ssl_options.hibernate_after", "ssl_options.eccs.*",
	"ssl_cert_login_from", "ssl_cert_login_san_type", "ssl_cert_login_san_index",
	"password_hashing_module", "auth_cache.**", "auth_http.**", "auth_ldap.**", "auth_oauth2.**",
	"default_users.**", "default_policies.**", "default_limits.**", "runtime_parameters.limits.*",
	"consumer_disconnected_timeout", "channel_operation_timeout", "max_connections_per_user", "message_store_shutdown_timeout",
	"vm_memory_high_watermark_paging_ratio", "vm_memory_calculation_strategy", "memory_monitor_interval", "disk_monitor_interval",
	"queue_index_embed_msgs_below", "queue_leader_locator", "queue_master_locator", "lazy_queue_explicit_gc_run_operation_threshold",
	"background_gc_enabled", "background_gc_target_interval", "credit_flow.**", "msg_store_file_size_limit",
	"quorum_queue.**", "quorum_commands_soft_limit", "quorum_cluster_size", "quorum_max_machine_version", "quorum_tick_interval",
	"classic_queue.**", "stream.**", "stream_read_ahead", "stream_read_ahead_limit", "cluster_partition_handling",
	"cluster_partition_handling.**", "cluster_keepalive_interval", "cluster_formation.**", "cluster_nodes.**", "forced_feature_flags_on_init",
	"definitions.**", "log.upgrade.file", "log.exchange", "log.exchange.level",
	"log.exchange.formatter", "log.exchange.formatter.**", "log.syslog", "log.syslog.**", "log.journald", "log.journald.**",
	"log.console.stdio", "log.console.use_colors", "log.console.color_esc_seqs.*", "log.console.formatter.**", "log.file.formatter.**",
	"log.file.rotation.*", "log.connection.*", "log.channel.*", "log.queue.*", "log.mirroring.*", "log.federation.*", "log.upgrade.*",
	"log.user.*", "log.ra.*", "log.default.*", "log.prelaunch.*", "log.shovel.*", "log.summarize_process_state", "log.error_logger_format_depth",
	"management.ssl.**", "management.listener.ssl", "management.listener.ssl_opts.**", "management.listener.server.**",
	"management.tcp.compress", "management.tcp.idle_timeout", "management.tcp.inactivity_timeout", "management.tcp.request_timeout",
	"management.tcp.shutdown_timeout", "management.tcp.max_keepalive", "management.rates_mode", "management.sample_retention_policies.**",
	"management.login_session_timeout", "management.disable_stats", "management.enable_queue_totals", "management.http_log_dir",
	"management.credential_encryption_secret", "management.require_auth_for_api_reference", "management.http.hide_allow_header",
	"management.definitions.require_json_extension", "management.cors.**", "management.csp.policy", "management.hsts.policy",
	"management.headers.*", "management.oauth_enabled", "management.oauth_**", "management.restrictions.**", "management.db_cache_multiplier",
	"management.delegate_count", "management_agent.**", "statistics_interval", "collect_statistics",
	"prometheus.ssl.**", "prometheus.path", "prometheus.filter_aggregated_queue_metrics_pattern", "prometheus.tcp.idle_timeout",
	"prometheus.tcp.inactivity_timeout", "prometheus.tcp.request_timeout", "prometheus.tcp.shutdown_timeout", "prometheus.tcp.max_keepalive",
	"mqtt.**", "stomp.**", "web_mqtt.**", "web_stomp.**", "shovel.**", "federation.**", "trust_store.**", "amqp1_0.**",
	"message_interceptors.**", "deprecated_features.permit.*", "motd_file", "node_tags.*", "cluster_tags.*", "feature_flags.**",
	"tracing.**", "auth_mechanisms_sasl.**", "peer_discovery.**", "secrets.**", "ram_cache.**",
}

// refused are keys whose values other than the harmless ones ask for protection that is not built: a warning would leave a door open.
var refused = map[string]string{
	"proxy_protocol":                          "false",
	"ssl_options.crl_check":                   "false",
	"ssl_options.password":                    "",
	"management.disable_basic_auth":           "false",
	"management.path_prefix":                  "/",
	"credential_validator.validation_backend": "rabbit_credential_validator_accept_everything",
}

// isInert says whether a name is one of those that change nothing.
func isInert(segments []string) bool {
	name := strings.Join(segments, ".")
	for _, pattern := range inert {
		if prefix, ok := strings.CutSuffix(pattern, "**"); ok {
			if strings.HasPrefix(name, prefix) && len(name) > len(prefix) {
				return true
			}
		} else if _, ok := match(pattern, segments); ok {
			return true
		}
	}
	return false
}

// nearest returns the known key that differs least from an unknown one, or nothing if none is close.
func nearest(segments []string) string {
	name := strings.Join(segments, ".")
	best, distance := "", len(name)/3+2
	try := func(pattern string) {
		candidate, shown := strings.TrimSuffix(pattern, ".**"), pattern
		if rest, ok := strings.CutSuffix(candidate, ".*"); ok { // a list: compare what stands before its last segment
			last := segments[len(segments)-1]
			candidate, shown = rest+"."+last, rest+".NAME"
		}
		if d := editDistance(name, candidate, distance); d < distance {
			best, distance = shown, d
		}
	}
	for _, k := range keys {
		try(k.pattern)
	}
	for _, pattern := range inert {
		if !strings.HasSuffix(pattern, "**") {
			try(pattern)
		}
	}
	for pattern := range refused {
		try(pattern)
	}
	return best
}

// editDistance counts insertions, deletions, replacements and swaps of neighbours that turn a into b, or returns limit if that many are needed.
func editDistance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	two, one, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range one {
		one[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(one[j]+1, row[j-1]+1, one[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], two[j-2]+1)
			}
		}
		two, one, row = one, row, two
	}
	return min(one[len(b)], limit)
}
