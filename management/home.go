package management

import "bytes"

// teller says of which queues this node tells: of those that all nodes know alike if a client asks it, of those that live here, and of those
// whose own node was asked and did not answer.
func (a *API) teller(r *request, others []heard) func(*Queue) bool {
	silent := map[string]bool{}
	for _, one := range others {
		silent[one.Name] = one.reply == nil
	}
	return func(q *Queue) bool {
		switch {
		case q.Home == "":
			return !r.asked
		case q.Home == a.Node:
			return true
		case r.asked:
			return false
		}
		away, isMember := silent[q.Home]
		return away || !isMember
	}
}

// consumers are those that want accepts, with those of the other members' clients. To a member they are told beside the queues, because the
// consumers of a queue may be on all nodes.
func (a *API) consumers(r *request, others []heard, want func(*Consumer) bool) []consumerView {
	var views []consumerView
	for c := range a.Broker.Consumers(r.vhostOf()) {
		if want(c) {
			views = append(views, a.consumerView(c))
		}
	}
	if r.asked {
		r.reply.Consumers = views
		return nil
	}
	for _, one := range others {
		if one.reply != nil {
			views = append(views, one.Consumers...)
		}
	}
	return views
}

// withConsumers puts consumers into a queue that another node has encoded without any.
func withConsumers(queue []byte, consumers []consumerView, wanted *columns) []byte {
	const none = `"consumer_details":[]`
	at := bytes.LastIndex(queue, []byte(none)) // an argument of that name stands before it
	if at < 0 || len(consumers) == 0 {
		return queue
	}
	member := wanted.encode(nil, struct {
		Consumers []consumerView `json:"consumer_details"`
	}{consumers})
	return bytes.Join([][]byte{queue[:at], member[1 : len(member)-1], queue[at+len(none):]}, nil)
}
