package management

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// records is what a fake has of users, policies and the rest: slices in the order in which things were made.
type records struct {
	accounts    []Account
	permissions []Permission
	topics      []TopicPermission
	vhostLimits map[string]map[string]int64
	policies    map[bool]map[string][]Policy // by whether they are the operator's, and virtual host
	parameters  []Parameter
	globals     []Parameter
	published   []Publication
	imported    []string
}

// put replaces the item that is the same, or appends it.
func put[T any](list *[]T, item T, same func(T) bool) (created bool) {
	if i := slices.IndexFunc(*list, same); i >= 0 {
		(*list)[i] = item
		return false
	}
	*list = append(*list, item)
	return true
}

// drop removes what matches.
func drop[T any](list *[]T, match func(T) bool) (existed bool) {
	n := len(*list)
	*list = slices.DeleteFunc(*list, match)
	return len(*list) < n
}

func (f *fake) Users() []Account { return f.accounts }
func (f *fake) PutUser(u Account) (bool, error) {
	return put(&f.accounts, u, func(v Account) bool { return v.Name == u.Name }), f.refusal
}
func (f *fake) DeleteUser(name string) (bool, error) {
	return drop(&f.accounts, func(u Account) bool { return u.Name == name }), f.refusal
}
func (f *fake) HashPassword(password string) []byte { return []byte("salt" + password) }
func (f *fake) Permissions() []Permission           { return f.permissions }
func (f *fake) SetPermissions(p Permission) (bool, error) {
	if strings.Contains(p.Configure, "[") {
		return false, &InvalidPattern{p.Configure, "missing terminating ] for character class", len(p.Configure)}
	}
	return put(&f.permissions, p, func(o Permission) bool { return o.User == p.User && o.VHost == p.VHost }), f.refusal
}
func (f *fake) ClearPermissions(vhost, user string) (bool, error) {
	return drop(&f.permissions, func(p Permission) bool { return p.User == user && p.VHost == vhost }), f.refusal
}
func (f *fake) TopicPermissions() []TopicPermission { return f.topics }
func (f *fake) SetTopicPermissions(p TopicPermission) error {
	put(&f.topics, p, func(o TopicPermission) bool {
		return o.User == p.User && o.VHost == p.VHost && o.Exchange == p.Exchange
	})
	return f.refusal
}
func (f *fake) ClearTopicPermissions(vhost, user, exchange string, all bool) error {
	drop(&f.topics, func(p TopicPermission) bool {
		return p.User == user && p.VHost == vhost && (all || p.Exchange == exchange)
	})
	return f.refusal
}
func (f *fake) SetUserLimit(user, name string, value any) error {
	n, err := value.(json.Number).Int64()
	for i := range f.accounts {
		if f.accounts[i].Name == user && err == nil {
			if f.accounts[i].Limits == nil {
				f.accounts[i].Limits = map[string]int64{}
			}
			f.accounts[i].Limits[name] = n
		}
	}
	return f.refusal
}
func (f *fake) ClearUserLimit(user, name string) error {
	for i := range f.accounts {
		if f.accounts[i].Name == user {
			delete(f.accounts[i].Limits, name)
		}
	}
	return f.refusal
}
func (f *fake) SetVHostLimit(vhost, name string, value any) error {
	if f.refusal != nil {
		return f.refusal
	}
	n, err := value.(json.Number).Int64()
	if f.vhostLimits == nil {
		f.vhostLimits = map[string]map[string]int64{}
	}
	if f.vhostLimits[vhost] == nil {
		f.vhostLimits[vhost] = map[string]int64{}
	}
	f.vhostLimits[vhost][name] = n
	return err
}
func (f *fake) ClearVHostLimit(vhost, name string) error {
	delete(f.vhostLimits[vhost], name)
	return f.refusal
}
func (f *fake) VHostLimits(vhost string) map[string]int64 { return f.vhostLimits[vhost] }

func (f *fake) Policies(vhost string, operator bool) []Policy { return f.policies[operator][vhost] }
func (f *fake) SetPolicy(vhost, name string, operator bool, body map[string]any) (bool, error) {
	if f.refusal != nil {
		return false, f.refusal
	}
	p := Policy{Name: name, Pattern: fmt.Sprint(body["pattern"]), ApplyTo: "all"}
	p.Definition, _ = body["definition"].(map[string]any)
	if n, ok := body["priority"].(json.Number); ok {
		p.Priority, _ = n.Int64()
	}
	if f.policies == nil {
		f.policies = map[bool]map[string][]Policy{false: {}, true: {}}
	}
	list := f.policies[operator][vhost]
	created := put(&list, p, func(o Policy) bool { return o.Name == name })
	f.policies[operator][vhost] = list
	return created, nil
}
func (f *fake) ClearPolicy(vhost, name string, operator bool) (bool, error) {
	list := f.policies[operator][vhost]
	existed := drop(&list, func(p Policy) bool { return p.Name == name })
	if existed {
		f.policies[operator][vhost] = list
	}
	return existed, f.refusal
}
func (f *fake) Effective(vhost, queue string) ([]EffectiveKey, bool) {
	return []EffectiveKey{{"max-length", 5, "policy p"}}, f.Queue(vhost, queue, new(Queue))
}
func (f *fake) Parameters(vhost string) []Parameter {
	return slices.DeleteFunc(slices.Clone(f.parameters), func(p Parameter) bool { return p.VHost != vhost })
}
func (f *fake) SetParameter(vhost, component, name string, value any) (bool, error) {
	if f.refusal != nil {
		return false, f.refusal
	}
	p := Parameter{vhost, component, name, value}
	return put(&f.parameters, p, func(o Parameter) bool { return o.VHost == vhost && o.Component == component && o.Name == name }), nil
}
func (f *fake) ClearParameter(vhost, component, name string) (bool, error) {
	return drop(&f.parameters, func(o Parameter) bool { return o.VHost == vhost && o.Component == component && o.Name == name }), f.refusal
}
func (f *fake) GlobalParameters() []Parameter { return f.globals }
func (f *fake) SetGlobalParameter(name string, value any) (bool, error) {
	return put(&f.globals, Parameter{Name: name, Value: value}, func(o Parameter) bool { return o.Name == name }), f.refusal
}
func (f *fake) ClearGlobalParameter(name string) (bool, error) {
	return drop(&f.globals, func(o Parameter) bool { return o.Name == name }), f.refusal
}
func (f *fake) Export(vhost string) any { return map[string]any{"vhost": vhost} }
func (f *fake) Import(vhost string, data []byte) error {
	f.imported = append(f.imported, vhost+": "+string(data))
	return f.refusal
}

func (f *fake) PutVHost(as User, v VHost) (bool, error) {
	return put(&f.vhosts, v, func(o VHost) bool { return o.Name == v.Name }), f.refusal
}
func (f *fake) DeleteVHost(name string) (bool, error) {
	return drop(&f.vhosts, func(v VHost) bool { return v.Name == name }), f.refusal
}
func (f *fake) DeclareExchange(as User, x *Exchange) (bool, error) {
	if f.refusal != nil {
		return false, f.refusal
	}
	return put(&f.exchanges, *x, func(o Exchange) bool { return o.VHost == x.VHost && o.Name == x.Name }), nil
}
func (f *fake) DeleteExchange(as User, vhost, name string, ifUnused bool) error {
	if f.refusal == nil {
		drop(&f.exchanges, func(o Exchange) bool { return o.VHost == vhost && o.Name == name })
	}
	return f.refusal
}
func (f *fake) Bind(as User, b *Binding) error {
	f.bindings = append(f.bindings, *b)
	return f.refusal
}
func (f *fake) Unbind(as User, b *Binding) error {
	drop(&f.bindings, func(o Binding) bool {
		return o.Source == b.Source && o.Destination == b.Destination && o.RoutingKey == b.RoutingKey
	})
	return f.refusal
}
func (f *fake) Publish(as User, m *Publication) (bool, error) {
	f.published = append(f.published, *m)
	return f.Queue(m.VHost, m.Key, new(Queue)), f.refusal
}
func (f *fake) Get(as User, q Fetch) ([]Message, error) {
	var got []Message
	for i, m := range f.published {
		if i < q.Count {
			got = append(got, Message{Exchange: m.Exchange, Key: m.Key, Left: uint64(len(f.published) - i - 1), Properties: m.Properties, Body: m.Body})
		}
	}
	if q.NoAck || !q.Requeue {
		f.published = f.published[len(got):]
	}
	return got, f.refusal
}
