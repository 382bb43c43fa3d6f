package broker

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
)

// Import makes what definitions say, as RabbitMQ exports them: all of them, or, of files of one virtual host, use
// VHost.Import. Exchanges, queues and bindings that exist stay as they are, other things are replaced, nothing is
// removed. What was made before an error stays. Warnings tell what was left out, and why. The error is Invalid, or one of
// the store.
//
// Files of RabbitMQ 3.8 and later are read; what 4.x no longer knows of classic queues (mirroring, masters) is left out.
// Import returns when everything is durable, and must not be called from a callback.
func (b *Broker) Import(data []byte) (warnings []string, err error) {
	all, err := parseDefinitions(data)
	if err != nil {
		return nil, err
	}
	m := importer{broker: b, all: all}
	err = m.run(
		m.each("users", "user", m.user),
		m.each("vhosts", "vhost", m.vhost),
		m.checkRoom,
		m.each("permissions", "permissions of user", m.permissions),
		m.each("exchanges", "exchange", m.exchange),
		m.each("topic_permissions", "topic permissions of user", m.topicPermissions),
		m.each("global_parameters", "global parameter", m.globalParameter),
		m.each("policies", "policy", m.policy),
		m.each("parameters", "parameter", m.parameter),
		m.applyPolicies,
		m.each("queues", "queue", m.queue),
		m.each("parameters", "parameter", m.vhostLimits),
		m.each("bindings", "binding", m.binding),
	)
	return m.warnings, err
}

// Import makes what definitions say in v: those of one virtual host, or of more, all of which then go to this one. See
// Broker.Import. Users, permissions and other virtual hosts are left out.
func (v *VHost) Import(data []byte) (warnings []string, err error) {
	all, err := parseDefinitions(data)
	if err != nil {
		return nil, err
	}
	m := importer{broker: v.broker, all: all, only: v}
	err = m.run(
		m.checkRoom,
		m.each("exchanges", "exchange", m.exchange),
		m.each("parameters", "parameter", m.parameter),
		m.each("policies", "policy", m.policy),
		m.applyPolicies,
		m.each("queues", "queue", m.queue),
		m.each("parameters", "parameter", m.vhostLimits),
		m.each("bindings", "binding", m.binding),
	)
	return m.warnings, err
}

// importer is an import that runs.
type importer struct {
	broker   *Broker
	all      map[string]any
	only     *VHost // everything goes here; nil: where it says
	warnings []string
	changed  map[*VHost][]*policy // policies that have changed and are not applied yet
}

// run takes the steps, each after what it needs. When it returns what they made is durable.
func (m *importer) run(steps ...func() error) (err error) {
	for _, s := range steps {
		if err = s(); err != nil {
			break
		}
	}
	if len(m.changed) > 0 {
		_ = m.applyPolicies()
	}
	failed := make(chan *amqp.Error, 1)
	m.broker.Sync(func(err *amqp.Error) { failed <- err })
	if err := <-failed; err != nil {
		return err
	}
	return err
}

// each is the step that imports all objects of a list.
func (m *importer) each(list, what string, one func(d *definition) error) func() error {
	return func() error {
		objects, err := definitionsOf(m.all, list, what)
		for i := range objects {
			d := &objects[i]
			if m.only != nil {
				d.fields["vhost"] = m.only.Name
			}
			if err := one(d); err != nil {
				return err
			}
		}
		return err
	}
}

func (m *importer) warn(d *definition, why string) error {
	m.warnings = append(m.warnings, d.describe()+": "+why)
	return nil
}

// commit makes a change and waits for its result.
func (m *importer) commit(c Command) result {
	done := make(chan result, 1)
	m.broker.commit(c, func(r result) { done <- r })
	return <-done
}

// in is the virtual host that an object goes to.
func (m *importer) in(d *definition) (*VHost, error) {
	if m.only != nil {
		return m.only, nil
	}
	name, ok := d.fields["vhost"].(string)
	if !ok {
		d.fail("it names no virtual host: definitions of a single virtual host can only be imported into one")
		return nil, d.error()
	}
	v := m.broker.VHost(name)
	if v == nil {
		return nil, &Invalid{fmt.Sprintf("Please create virtual host \"%s\" prior to importing definitions.", name)}
	}
	return v, nil
}

// algorithms are the hash functions by RabbitMQ's names.
var algorithms = map[string]Algorithm{SHA256.String(): SHA256, SHA512.String(): SHA512, MD5.String(): MD5}

// maxTags is how many tags a user can have.
const maxTags = 32

func (m *importer) user(d *definition) error {
	u := User{Name: d.needed("name"), Tags: d.words("tags")}
	hash, password := d.text("password_hash", ""), d.text("password", "")
	switch {
	case !d.has("tags"):
		d.fail("tags_not_present")
	case len(u.Tags) > maxTags:
		d.fail("A user can have at most %d tags (received %d)", maxTags, len(u.Tags))
	case d.has("password_hash") && d.has("password"):
		d.fail("both_password_and_password_hash_are_provided")
	case password != "":
		u.Hash = HashPassword(password)
	case hash != "":
		var err error
		if u.Hash, err = base64.StdEncoding.DecodeString(hash); err != nil {
			d.fail("password_hash is not base64")
		}
		name := d.text("hashing_algorithm", m.defaultAlgorithm().String())
		var ok bool
		if u.Algorithm, ok = algorithms[name]; !ok {
			d.fail("unknown hashing_algorithm %s", name)
		}
	}
	limits := d.object("limits")
	if wrong := checkLimits(limits, userLimits, "user-limits"); wrong != "" {
		d.fail("%s", wrong)
	}
	if err := d.error(); err != nil {
		return err
	}
	if r := m.commit(PutUser{u}); r.refused != nil {
		return d.refused(r.refused)
	}
	if d.has("limits") && (len(limits) > 0 || m.broker.UserLimits(u.Name) != nil) {
		value, _ := encodeJSON(limits) // it came from JSON
		return d.refused(orNil(m.commit(SetUserLimits{u.Name, value}).refused))
	}
	return nil
}

// defaultAlgorithm is that of users without one: MD5 before RabbitMQ 3.6.
func (m *importer) defaultAlgorithm() Algorithm {
	version, _ := m.all["rabbit_version"].(string)
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return SHA256
	}
	major, err := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	if err == nil && err2 == nil && (major < 3 || major == 3 && minor < 6) {
		return MD5
	}
	return SHA256
}

func (m *importer) vhost(d *definition) error {
	name := d.needed("name")
	meta := definition{what: "vhost", fields: d.object("metadata")}
	for _, field := range []string{"description", "tags", "default_queue_type"} {
		if !meta.has(field) && d.has(field) {
			meta.fields[field] = d.fields[field]
		}
	}
	c := PutVHost{Name: name, Default: name == m.broker.DefaultVHost}
	if v := m.broker.VHost(name); v != nil { // what is not mentioned stays
		v.mu.RLock()
		c.Description, c.Tags, c.DefaultQueueType = v.description, v.tags, v.defaultType
		v.mu.RUnlock()
	}
	c.Description = meta.text("description", c.Description)
	if meta.has("tags") {
		c.Tags = meta.words("tags")
	}
	if typ := meta.text("default_queue_type", "undefined"); typ != "undefined" && typ != "" {
		c.DefaultQueueType = strings.TrimSuffix(strings.TrimPrefix(typ, "rabbit_"), "_queue")
		if typeIndex(c.DefaultQueueType) < 0 {
			d.fail("%s is not a valid queue type", typ)
		}
	}
	if meta.wrong != "" {
		d.fail("%s", meta.wrong)
	}
	if err := d.error(); err != nil {
		return err
	}
	return d.refused(orNil(m.commit(c).refused))
}

// checkRoom refuses definitions with more queues than a virtual host may have, before anything is made.
func (m *importer) checkRoom() error {
	queues, err := definitionsOf(m.all, "queues", "queue")
	if err != nil {
		return err
	}
	more := map[*VHost]map[string]bool{}
	for i := range queues {
		v, err := m.in(&queues[i])
		if err != nil {
			return err
		}
		name, _ := queues[i].fields["name"].(string)
		if more[v] == nil {
			more[v] = map[string]bool{}
		}
		if v.Queue(name) == nil {
			more[v][name] = true
		}
	}
	for v, names := range more {
		v.mu.RLock()
		limit, ok := v.limits[maxQueues]
		count := v.count
		v.mu.RUnlock()
		if n := len(names); ok && limit >= 0 && n > 0 && int64(count+n) > limit {
			return &Invalid{fmt.Sprintf("Adding %d queue(s) to virtual host \"%s\" would exceed the limit of %d queue(s).\n\nThis virtual host currently has %d queue(s) defined.\n\nImport aborted!", n, v.Name, limit, count)}
		}
	}
	return nil
}

// known finds the user and the virtual host of permissions, and checks the patterns.
func (m *importer) known(d *definition, patterns ...string) (v *VHost, user string, err error) {
	if v, err = m.in(d); err != nil {
		return nil, "", err
	}
	user = d.needed("user")
	if d.wrong == "" && m.broker.User(user) == nil {
		d.fail("no such user")
	}
	for _, name := range patterns {
		if _, err := compileExpression(d.needed(name)); err != nil {
			d.fail("%s: %s", name, err)
		}
	}
	return v, user, d.error()
}

func (m *importer) permissions(d *definition) error {
	v, user, err := m.known(d, "configure", "write", "read")
	if err != nil {
		return err
	}
	return d.refused(orNil(m.commit(SetPermissions{v.Name, user, d.text("configure", ""), d.text("write", ""), d.text("read", "")}).refused))
}

func (m *importer) topicPermissions(d *definition) error {
	v, user, err := m.known(d, "write", "read")
	if err != nil {
		return err
	}
	x := d.needed("exchange")
	if err := d.error(); err != nil {
		return err
	}
	return d.refused(orNil(m.commit(SetTopicPermissions{v.Name, user, x, d.text("write", ""), d.text("read", "")}).refused))
}

func (m *importer) globalParameter(d *definition) error {
	name := d.needed("name")
	if err := d.error(); err != nil {
		return err
	}
	value, err := encodeJSON(d.fields["value"])
	if err != nil {
		return d.refused(err)
	}
	return d.refused(orNil(m.commit(SetGlobalParameter{name, value}).refused))
}

// outdated are keys of policies that RabbitMQ 4 has no more.
var outdated = []string{
	"ha-mode", "ha-params", "ha-sync-mode", "ha-sync-batch-size", "ha-promote-on-shutdown", "ha-promote-on-failure", "queue-master-locator",
}

// current takes outdated keys out of the definition of a policy, and reports whether something is left.
func (m *importer) current(d *definition, body map[string]any) bool {
	keys, ok := body["definition"].(map[string]any)
	if !ok || len(keys) == 0 {
		return true // an error, to be found later
	}
	left := maps.Clone(keys)
	for _, key := range outdated {
		if _, ok := left[key]; ok {
			delete(left, key)
			_ = m.warn(d, "the key "+key+" has no meaning any more and is left out")
		}
	}
	body["definition"] = left
	return len(left) > 0
}

func (m *importer) policy(d *definition) error {
	v, err := m.in(d)
	if err != nil {
		return err
	}
	name := d.needed("name")
	if err := d.error(); err != nil {
		return err
	}
	if !m.current(d, d.fields) {
		return nil
	}
	return m.putPolicy(v, false, name, d.fields, fmt.Sprintf(" (vhost: \"%s\" key: \"%s\")", v.Name, name))
}

func (m *importer) putPolicy(v *VHost, operator bool, name string, body map[string]any, where string) error {
	if n, ok := whole(body["priority"]); ok {
		body["priority"] = n
	}
	p, err := ParsePolicy(name, body)
	if err == nil {
		var c *policy
		if c, err = compilePolicy(p, operator); err == nil {
			r := m.commit(PutPolicy{v.Name, operator, c.Policy})
			if m.changed == nil {
				m.changed = make(map[*VHost][]*policy)
			}
			if !r.carried {
				m.changed[v] = append(m.changed[v], r.policies...)
			}
			err = orNil(r.refused)
		}
	}
	if err != nil {
		return &Invalid{err.Error() + where}
	}
	return nil
}

// vhostLimits imports the parameters that limit a virtual host. They come after its queues: a limit spares the queues that
// there were before it, and what has been exported so must be importable.
func (m *importer) vhostLimits(d *definition) error {
	if d.text("component", "") != limitsComponent {
		return d.error()
	}
	return m.put(d)
}

// parameter imports the other parameters.
func (m *importer) parameter(d *definition) error {
	if d.text("component", "") == limitsComponent {
		return d.error()
	}
	return m.put(d)
}

// put imports a parameter.
func (m *importer) put(d *definition) error {
	v, err := m.in(d)
	if err != nil {
		return err
	}
	component, name := d.needed("component"), d.needed("name")
	if err := d.error(); err != nil {
		return err
	}
	where := fmt.Sprintf(" (vhost: \"%s\" / component: \"%s\" / key: \"%s\")", v.Name, component, name)
	if component == operatorComponent {
		if body := d.object("value"); d.wrong == "" {
			body = maps.Clone(body)
			if !m.current(d, body) {
				return nil
			}
			return m.putPolicy(v, true, name, body, where)
		}
		return d.error()
	}
	c, err := v.checkParameter(component, name, d.fields["value"])
	if err == nil {
		err = orNil(m.commit(c).refused)
	}
	if err != nil {
		return &Invalid{err.Error() + where}
	}
	return nil
}

// applyPolicies lets the policies that have changed take effect on what exists.
func (m *importer) applyPolicies() error {
	for v, changed := range m.changed {
		v.reconfigure(changed)
	}
	m.changed = nil
	return nil
}

func (m *importer) exchange(d *definition) error {
	v, err := m.in(d)
	if err != nil {
		return err
	}
	x := exchange.Declaration{
		Name: d.short("name"), Type: d.text("type", exchange.Direct),
		Durable: d.flag("durable", true), AutoDelete: d.flag("auto_delete", false), Internal: d.flag("internal", false),
		Arguments: d.arguments(),
	}
	if err := d.error(); err != nil {
		return err
	}
	_, exists := v.Exchange(x.Name)
	switch {
	case exists:
		return nil
	case x.Name == "" || strings.HasPrefix(x.Name, reserved):
		return m.warn(d, "names that begin with 'amq.' are the broker's, it is left out")
	}
	done := make(chan *amqp.Error, 1)
	v.DeclareExchange(Actor{Pipelined: true}, x, func(err *amqp.Error) { done <- err })
	return d.refused(orNil(<-done))
}

// arguments are the arguments of a declaration.
func (d *definition) arguments() amqp.Table {
	t, err := amqp.TableOf(d.object("arguments"))
	if err != nil {
		d.fail("arguments: %s", err)
	}
	return t
}

func (m *importer) queue(d *definition) error {
	v, err := m.in(d)
	if err != nil {
		return err
	}
	arguments := maps.Clone(d.object("arguments"))
	if typ := d.text("type", ""); arguments["x-queue-type"] == nil && typeIndex(typ) >= 0 {
		arguments["x-queue-type"] = typ // otherwise it would be the default, which was another when the queue was declared
	}
	if n, ok := integerOf(arguments["x-queue-version"]); ok && n == 1 {
		delete(arguments, "x-queue-version")
		_ = m.warn(d, "version 1 of classic queues is no more, the argument is left out")
	}
	d.fields["arguments"] = arguments
	q := QueueDeclaration{
		Name: d.short("name"), Durable: d.flag("durable", true), AutoDelete: d.flag("auto_delete", false), Arguments: d.arguments(),
	}
	if q.Name == "" {
		d.fail("name is empty")
	}
	if err := d.error(); err != nil {
		return err
	}
	switch {
	case v.Queue(q.Name) != nil:
		return nil
	case strings.HasPrefix(q.Name, reserved):
		return m.warn(d, "names that begin with 'amq.' are the broker's, it is left out")
	}
	done := make(chan *amqp.Error, 1)
	v.DeclareQueue(Actor{Pipelined: true}, q, func(_ *Queue, err *amqp.Error) { done <- err })
	return d.refused(orNil(<-done))
}

func (m *importer) binding(d *definition) error {
	v, err := m.in(d)
	if err != nil {
		return err
	}
	typ := d.text("destination_type", "queue")
	if !d.has("routing_key") {
		d.fields["routing_key"] = ""
	}
	if !slices.Contains([]string{"queue", "exchange"}, typ) {
		d.fail("destination_type should be queue or exchange but was %s", typ)
	}
	b := Binding{
		Source: d.needed("source"), Destination: d.needed("destination"), ToExchange: typ == "exchange",
		Key: d.short("routing_key"), Arguments: d.arguments(),
	}
	if err := d.error(); err != nil {
		return err
	}
	if b.Source == "" {
		return nil // every queue has it
	}
	if strings.HasPrefix(b.Destination, reserved) && !b.ToExchange && v.Queue(b.Destination) == nil {
		return m.warn(d, "its queue was left out")
	}
	done := make(chan *amqp.Error, 1)
	v.Bind(Actor{Pipelined: true}, b, func(err *amqp.Error) { done <- err })
	return d.refused(orNil(<-done))
}
