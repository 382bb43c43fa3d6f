package management

// Rules is what Broker knows of policies, parameters and definitions.
type Rules interface {
	// Policies of a virtual host, the operator's or the users', in no order.
	Policies(vhost string, operator bool) []Policy
	// SetPolicy makes or replaces a policy from a JSON object as RabbitMQ's API takes it. What is wrong with it is a Refusal.
	SetPolicy(vhost, name string, operator bool, body map[string]any) (created bool, err error)
	ClearPolicy(vhost, name string, operator bool) (existed bool, err error)
	// Effective is what counts for a queue, key by key, and where it comes from; false: there is no such queue.
	Effective(vhost, queue string) ([]EffectiveKey, bool)

	// Parameters of a virtual host, with limits and operator policies.
	Parameters(vhost string) []Parameter
	SetParameter(vhost, component, name string, value any) (created bool, err error)
	ClearParameter(vhost, component, name string) (existed bool, err error)
	GlobalParameters() []Parameter
	SetGlobalParameter(name string, value any) (created bool, err error)
	ClearGlobalParameter(name string) (existed bool, err error)

	// Export returns definitions as what encoding/json writes; of one virtual host, or of all with an empty name.
	Export(vhost string) any
	// Import adds definitions from JSON to a virtual host, or to the whole node with an empty name. A wrong one is a Refusal; what came
	// before it in the order of import stays.
	Import(vhost string, data []byte) error
}

// Policy is a rule for queues and exchanges whose names match.
type Policy struct {
	Name, Pattern string
	// ApplyTo is all, queues, classic_queues, quorum_queues, streams or exchanges.
	ApplyTo    string
	Priority   int64
	Definition map[string]any
}

// EffectiveKey is one setting of a queue. Origin is argument, "policy NAME" or "operator policy NAME".
type EffectiveKey struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Origin string `json:"origin"`
}

// Parameter is a runtime parameter. Global ones have neither virtual host nor component.
type Parameter struct {
	VHost, Component, Name string
	Value                  any
}
