package broker

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strings"
)

// Definitions are everything that was declared and set, in RabbitMQ's JSON. Lists are sorted, so that equal states have
// equal octets.
//
// Left out is what an import would not make: exclusive queues, what the broker names itself (amq.…), and bindings of
// these queues.
type Definitions struct {
	RabbitVersion   string `json:"rabbit_version"`
	RabbitMQVersion string `json:"rabbitmq_version"`
	ProductName     string `json:"product_name"`
	ProductVersion  string `json:"product_version"`
	Format          string `json:"rabbitmq_definition_format"` // cluster or single_virtual_host
	Cluster         string `json:"original_cluster_name,omitzero"`
	VHost           string `json:"original_vhost_name,omitzero"`
	Explanation     string `json:"explanation"`

	// Of a single virtual host.
	Metadata    *VHostMetadata `json:"metadata,omitzero"`
	Description *string        `json:"description,omitzero"`
	Limits      Limits         `json:"limits,omitzero"`

	Users            []UserDefinition            `json:"users,omitzero"`
	VHosts           []VHostDefinition           `json:"vhosts,omitzero"`
	Permissions      []PermissionDefinition      `json:"permissions,omitzero"`
	TopicPermissions []TopicPermissionDefinition `json:"topic_permissions,omitzero"`
	GlobalParameters []ParameterDefinition       `json:"global_parameters,omitzero"`
	Parameters       []ParameterDefinition       `json:"parameters"`
	Policies         []PolicyDefinition          `json:"policies"`
	Exchanges        []ExchangeDefinition        `json:"exchanges"`
	Queues           []QueueDefinition           `json:"queues"`
	Bindings         []BindingDefinition         `json:"bindings"`
}

// UserDefinition is a user. PasswordHash is base64, Algorithm RabbitMQ's name of one.
type UserDefinition struct {
	Name         string   `json:"name"`
	PasswordHash string   `json:"password_hash"`
	Algorithm    string   `json:"hashing_algorithm"`
	Tags         []string `json:"tags"`
	Limits       Limits   `json:"limits"`
}

// VHostDefinition is a virtual host.
type VHostDefinition struct {
	Name     string        `json:"name"`
	Limits   Limits        `json:"limits"` // for readers: an import takes them from the parameters
	Metadata VHostMetadata `json:"metadata"`
}

// VHostMetadata is what people and declarations may know of a virtual host.
type VHostMetadata struct {
	Description      string   `json:"description"`
	Tags             []string `json:"tags"`
	DefaultQueueType string   `json:"default_queue_type"`
}

// PermissionDefinition is a user's permissions in a virtual host.
type PermissionDefinition struct {
	User      string `json:"user"`
	VHost     string `json:"vhost"`
	Configure string `json:"configure"`
	Write     string `json:"write"`
	Read      string `json:"read"`
}

// TopicPermissionDefinition is a user's permissions at a topic exchange.
type TopicPermissionDefinition struct {
	User     string `json:"user"`
	VHost    string `json:"vhost"`
	Exchange string `json:"exchange"`
	Write    string `json:"write"`
	Read     string `json:"read"`
}

// ParameterDefinition is a runtime parameter, a global one without virtual host and component.
type ParameterDefinition struct {
	VHost     *string `json:"vhost,omitzero"`
	Component string  `json:"component,omitzero"`
	Name      string  `json:"name"`
	Value     any     `json:"value"`
}

// PolicyDefinition is a policy.
type PolicyDefinition struct {
	VHost      *string        `json:"vhost,omitzero"`
	Name       string         `json:"name"`
	Pattern    string         `json:"pattern"`
	ApplyTo    string         `json:"apply-to"`
	Definition map[string]any `json:"definition"`
	Priority   int64          `json:"priority"`
}

// ExchangeDefinition is an exchange.
type ExchangeDefinition struct {
	Name       string         `json:"name"`
	VHost      *string        `json:"vhost,omitzero"`
	Type       string         `json:"type"`
	Durable    bool           `json:"durable"`
	AutoDelete bool           `json:"auto_delete"`
	Internal   bool           `json:"internal,omitzero"` // RabbitMQ leaves such exchanges out, and takes the field
	Arguments  map[string]any `json:"arguments"`
}

// QueueDefinition is a queue.
type QueueDefinition struct {
	Name       string         `json:"name"`
	VHost      *string        `json:"vhost,omitzero"`
	Type       string         `json:"type"`
	Durable    bool           `json:"durable"`
	AutoDelete bool           `json:"auto_delete"`
	Arguments  map[string]any `json:"arguments"`
}

// BindingDefinition is a binding. DestinationType is queue or exchange.
type BindingDefinition struct {
	Source          string         `json:"source"`
	VHost           *string        `json:"vhost,omitzero"`
	Destination     string         `json:"destination"`
	DestinationType string         `json:"destination_type"`
	RoutingKey      string         `json:"routing_key"`
	Arguments       map[string]any `json:"arguments"`
}

// Origin says whose definitions they are.
type Origin struct {
	Cluster, Product, ProductVersion string
	Version                          string // of RabbitMQ, whose format it is
}

func (o Origin) definitions(format string) *Definitions {
	return &Definitions{
		RabbitVersion: o.Version, RabbitMQVersion: o.Version, ProductName: o.Product, ProductVersion: o.ProductVersion, Format: format,
		Parameters: []ParameterDefinition{}, Policies: []PolicyDefinition{},
		Exchanges: []ExchangeDefinition{}, Queues: []QueueDefinition{}, Bindings: []BindingDefinition{},
	}
}

// Export returns all definitions. Each virtual host is seen as it is at one moment, but not all at the same.
func (b *Broker) Export(o Origin) *Definitions {
	d := o.definitions("cluster")
	d.Cluster, d.Explanation = o.Cluster, "Definitions of cluster '"+o.Cluster+"'"
	d.Users, d.VHosts, d.GlobalParameters = []UserDefinition{}, []VHostDefinition{}, []ParameterDefinition{}
	d.Permissions, d.TopicPermissions = []PermissionDefinition{}, []TopicPermissionDefinition{}
	known := map[string]bool{} // a user may go while we look
	for _, u := range b.Users() {
		known[u.Name] = true
		d.Users = append(d.Users, UserDefinition{
			Name: u.Name, PasswordHash: base64.StdEncoding.EncodeToString(u.Hash), Algorithm: u.Algorithm.String(),
			Tags: list(u.Tags), Limits: shownLimits(b.UserLimits(u.Name)),
		})
	}
	for _, p := range b.GlobalParameters() {
		d.GlobalParameters = append(d.GlobalParameters, ParameterDefinition{Name: p.Name, Value: p.Value})
	}
	for _, v := range b.VHosts() {
		d.VHosts = append(d.VHosts, VHostDefinition{v.Name, shownLimits(v.Limits()), v.metadata()})
		for _, p := range v.Permissions() {
			if known[p.User] {
				d.Permissions = append(d.Permissions, PermissionDefinition{p.User, p.VHost, p.Configure, p.Write, p.Read})
			}
		}
		for _, p := range v.TopicPermissions() {
			if known[p.User] {
				d.TopicPermissions = append(d.TopicPermissions, TopicPermissionDefinition(p))
			}
		}
		v.export(d, &v.Name)
	}
	return d
}

// Export returns the definitions of one virtual host, without its users and permissions.
func (v *VHost) Export(o Origin) *Definitions {
	d := o.definitions("single_virtual_host")
	d.VHost, d.Explanation = v.Name, "Definitions of virtual host '"+v.Name+"'"
	m := v.metadata()
	d.Metadata, d.Description, d.Limits = &m, &m.Description, shownLimits(v.Limits())
	v.export(d, nil)
	return d
}

// export appends what is in v, under that name.
func (v *VHost) export(d *Definitions, vhost *string) {
	for _, p := range v.Parameters() {
		d.Parameters = append(d.Parameters, ParameterDefinition{vhost, p.Component, p.Name, p.Value})
	}
	policies := v.Policies(false)
	slices.SortFunc(policies, func(a, b Policy) int { return cmp.Compare(a.Name, b.Name) })
	for _, p := range policies {
		d.Policies = append(d.Policies, PolicyDefinition{vhost, p.Name, p.Pattern, p.ApplyTo, p.Definition, p.Priority})
	}
	for _, x := range v.Exchanges() {
		if x.Name != "" && !strings.HasPrefix(x.Name, reserved) {
			d.Exchanges = append(d.Exchanges, ExchangeDefinition{x.Name, vhost, x.Type, x.Durable, x.AutoDelete, x.Internal, x.Arguments.Map()})
		}
	}
	out := map[string]bool{} // queues that are left out
	for _, q := range v.Queues() {
		if out[q.Name] = q.Exclusive() || strings.HasPrefix(q.Name, reserved); !out[q.Name] {
			d.Queues = append(d.Queues, QueueDefinition{q.Name, vhost, q.Type, q.Durable, q.AutoDelete, q.Arguments.Map()})
		}
	}
	type sortable struct {
		BindingDefinition
		arguments string
	}
	var bindings []sortable
	for _, b := range v.Bindings() {
		typ := "queue"
		if b.ToExchange {
			typ = "exchange"
		}
		if b.Source == "" || !b.ToExchange && out[b.Destination] {
			continue
		}
		arguments := b.Arguments.Map()
		spelt, _ := encodeJSON(arguments)
		bindings = append(bindings, sortable{BindingDefinition{b.Source, vhost, b.Destination, typ, b.Key, arguments}, string(spelt)})
	}
	slices.SortFunc(bindings, func(a, b sortable) int {
		return cmp.Or(
			cmp.Compare(a.Source, b.Source), cmp.Compare(a.DestinationType, b.DestinationType), cmp.Compare(a.Destination, b.Destination),
			cmp.Compare(a.RoutingKey, b.RoutingKey), cmp.Compare(a.arguments, b.arguments))
	})
	for _, b := range bindings {
		d.Bindings = append(d.Bindings, b.BindingDefinition)
	}
}

func (v *VHost) metadata() VHostMetadata {
	d := v.Description()
	return VHostMetadata{d.Description, list(d.Tags), d.DefaultQueueType}
}

// list is never null in JSON.
func list(l []string) []string {
	if l == nil {
		return []string{}
	}
	return l
}

func shownLimits(l Limits) Limits {
	if l == nil {
		return Limits{}
	}
	return l
}
