package management

import (
	"net/http"
	"strings"
)

type connectionView struct {
	Name             string         `json:"name"`
	Node             string         `json:"node"`
	User             string         `json:"user"`
	Actor            string         `json:"user_who_performed_action"`
	VHost            string         `json:"vhost"`
	ProvidedName     string         `json:"user_provided_name,omitempty"`
	State            string         `json:"state"`
	Type             string         `json:"type"`
	Protocol         string         `json:"protocol"`
	AuthMechanism    string         `json:"auth_mechanism"`
	Host             string         `json:"host"`
	Port             int            `json:"port"`
	PeerHost         string         `json:"peer_host"`
	PeerPort         int            `json:"peer_port"`
	TLS              bool           `json:"ssl"`
	TLSProtocol      *string        `json:"ssl_protocol"`
	TLSKeyExchange   *string        `json:"ssl_key_exchange"`
	TLSCipher        *string        `json:"ssl_cipher"`
	TLSHash          *string        `json:"ssl_hash"`
	CertSubject      *string        `json:"peer_cert_subject"`
	CertIssuer       *string        `json:"peer_cert_issuer"`
	CertSerial       *string        `json:"peer_cert_serial_number"`
	CertValidity     *string        `json:"peer_cert_validity"`
	Timeout          int64          `json:"timeout"`
	FrameMax         uint32         `json:"frame_max"`
	ChannelMax       uint16         `json:"channel_max"`
	Channels         int            `json:"channels"`
	ConnectedAt      int64          `json:"connected_at"`
	ClientProperties map[string]any `json:"client_properties"`
	ReceivedBytes    uint64         `json:"recv_oct"`
	SentBytes        uint64         `json:"send_oct"`
	Reads            uint64         `json:"recv_cnt,omitempty"`
	Writes           uint64         `json:"send_cnt,omitempty"`
	PendingBytes     uint64         `json:"send_pend,omitempty"`
}

// connectionIdentityView are the fields of a connection that do not move.
type connectionIdentityView struct {
	Name  string `json:"name"`
	VHost string `json:"vhost"`
	User  string `json:"user"`
	Node  string `json:"node"`
}

func (a *API) connectionView(c *Connection) connectionView {
	v := connectionView{Name: c.Name, Node: a.Node, User: c.User, Actor: c.User, VHost: c.VHost, State: c.State, Type: "network", Protocol: "AMQP 0-9-1",
		AuthMechanism: c.AuthMechanism, Host: c.Host, Port: c.Port, PeerHost: c.PeerHost, PeerPort: c.PeerPort,
		Timeout: int64(c.Heartbeat.Seconds()), FrameMax: c.FrameMax, ChannelMax: c.ChannelMax, Channels: c.Channels,
		ConnectedAt: c.ConnectedAt.UnixMilli(), ClientProperties: jsonTable(c.ClientProperties),
		ReceivedBytes: c.ReceivedBytes, SentBytes: c.SentBytes, Reads: c.Reads, Writes: c.Writes, PendingBytes: c.PendingBytes}
	v.ProvidedName, _ = v.ClientProperties["connection_name"].(string)
	if c.TLS != nil {
		v.TLS = true
		v.TLSProtocol, v.TLSKeyExchange, v.TLSCipher, v.TLSHash = known(c.TLS.Protocol), known(c.TLS.KeyExchange), known(c.TLS.Cipher), known(c.TLS.Hash)
		v.CertSubject, v.CertIssuer, v.CertSerial, v.CertValidity = known(c.TLS.Subject), known(c.TLS.Issuer), known(c.TLS.Serial), known(c.TLS.Validity)
	}
	return v
}

// known is null in JSON for an empty text.
func known(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// listConnections shows monitors all connections, others their own.
func (a *API) listConnections(r *request) {
	q, ok := a.query(r, true)
	if !ok {
		return
	}
	vhost := r.vhostOf()
	l := rows{query: q}
	for c := range a.Broker.Connections() {
		if (vhost == "" || c.VHost == vhost) && (c.User == r.user.Name || r.user.monitors()) {
			l.add(c.VHost, c.Name, 0, func() any { return a.connectionView(c) })
		}
	}
	a.gather(r, &l)
	a.send(r, &l, func(row row) (any, bool) {
		var c Connection
		if !a.Broker.Connection(row.name, &c) {
			return nil, false
		}
		if q.identity {
			return connectionIdentityView{c.Name, c.VHost, c.User, a.Node}, true
		}
		return a.connectionView(&c), true
	})
}

// connection finds the connection in the path, or passes the request on to the node that has it, or answers that there is none, or that it
// is somebody else's.
func (a *API) connection(r *request, others bool) (c Connection, ok bool) {
	if !a.Broker.Connection(r.vars["connection"], &c) {
		if !a.elsewhere(r) {
			a.missing(r.w)
		}
		return c, false
	}
	if c.User != r.user.Name && !others {
		a.fail(r.w, http.StatusUnauthorized, "not_authorised", "User not authorised to access object")
		return c, false
	}
	return c, true
}

func (a *API) oneConnection(r *request) {
	if c, ok := a.connection(r, r.user.monitors()); ok {
		a.answer(r, a.connectionView(&c))
	}
}

// reason is what a client reads when its connection is closed.
func reason(r *request) string {
	text := r.Header.Get("X-Reason")
	if text == "" {
		return "Closed via management plugin"
	}
	// A close's text is a short string with CONNECTION_FORCED and a separator before it.
	return strings.ToValidUTF8(text[:min(len(text), 200)], "")
}

func (a *API) closeConnection(r *request) {
	c, ok := a.connection(r, r.user.administers())
	if !ok {
		return
	}
	if !a.Broker.CloseConnection(c.Name, reason(r)) {
		a.missing(r.w)
		return
	}
	r.w.WriteHeader(http.StatusNoContent)
}

func (a *API) userConnections(r *request) {
	name := r.vars["user"]
	if name != r.user.Name && !r.user.monitors() {
		a.fail(r.w, http.StatusUnauthorized, "not_authorised", "User not authorised to access object")
		return
	}
	q, ok := a.query(r, true)
	if !ok {
		return
	}
	l := rows{query: q}
	var kept []connectionIdentityView
	for c := range a.Broker.Connections() {
		if c.User == name {
			view := connectionIdentityView{c.Name, c.VHost, c.User, a.Node}
			kept = append(kept, view)
			l.add(c.VHost, c.Name, len(kept)-1, func() any { return view })
		}
	}
	a.gather(r, &l)
	a.send(r, &l, func(row row) (any, bool) { return kept[row.at], true })
}

func (a *API) closeUserConnections(r *request) {
	name := r.vars["user"]
	if name != r.user.Name && !r.user.administers() {
		a.fail(r.w, http.StatusUnauthorized, "not_authorised", "User not authorised to access object")
		return
	}
	var names []string
	for c := range a.Broker.Connections() {
		if c.User == name {
			names = append(names, c.Name)
		}
	}
	for _, connection := range names {
		a.Broker.CloseConnection(connection, reason(r))
	}
	a.others(r, r.asks(http.MethodDelete))
	r.w.WriteHeader(http.StatusNoContent)
}
