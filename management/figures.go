package management

import (
	"math"
	"reflect"
)

// figures are what an overview says of one node. Those of all nodes add up to those of the cluster.
type figures struct {
	Connections, Channels, Consumers uint64

	Queues      queueTotalsView
	Churn       churnView
	Published   *publishedView
	Delivered   *deliveredView
	Disk        *diskView
	Publish     *uint64
	PublishRate *details
	Listeners   []listenerView
	Contexts    []contextView
}

// figures are those of this node.
func (a *API) figures() figures {
	var counts Counts
	a.Broker.Counts(&counts)
	t, rates := a.Broker.Totals(), a.samples.node()
	f := figures{Connections: t.Connections, Channels: t.Channels, Consumers: t.Consumers, Churn: churn(&counts, &rates), Contexts: a.contexts(),
		Queues: queueTotalsView{t.Ready + t.Unacked, details{rates.ready + rates.unacked}, t.Ready, details{rates.ready}, t.Unacked, details{rates.unacked}}}
	if m := nodeMessageStats(&counts, &rates); m != nil {
		f.Published, f.Delivered, f.Disk, f.Publish, f.PublishRate = m.publishedView, m.deliveredView, m.diskView, m.Publish, m.PublishDetails
	}
	for _, l := range a.Listeners() {
		f.Listeners = append(f.Listeners, listenerView{a.Node, l.Protocol, l.Host, l.Port, l.TLS})
	}
	return f
}

// messageStats is nil if nothing happened yet.
func (f *figures) messageStats() *messageStatsView {
	if f.Publish == nil {
		return nil
	}
	return &messageStatsView{publishedView: f.Published, deliveredView: f.Delivered, Publish: f.Publish, PublishDetails: f.PublishRate, diskView: f.Disk}
}

// addUp adds the numbers of a value to those of another of its type, and the items of its lists to its lists. Rates keep three places.
func addUp(into, from reflect.Value) {
	switch into.Kind() {
	case reflect.Uint64:
		into.SetUint(into.Uint() + from.Uint())
	case reflect.Float64:
		into.SetFloat(math.Round((into.Float()+from.Float())*1000) / 1000)
	case reflect.Slice:
		into.Set(reflect.AppendSlice(into, from))
	case reflect.Struct:
		for i := range into.NumField() {
			addUp(into.Field(i), from.Field(i))
		}
	case reflect.Pointer:
		switch {
		case from.IsNil():
		case into.IsNil(): // what is added stays as it is
			into.Set(reflect.New(into.Type().Elem()))
			fallthrough
		default:
			addUp(into.Elem(), from.Elem())
		}
	}
}
