package server

import "sync"

// mailbox is where others leave what the reader shall do: answers to operations that took their time, room for a
// publisher, an operator's wish to close. A reader that sleeps is woken.
type mailbox struct {
	mu     sync.Mutex // guards what follows; a leaf
	work   []func()
	asleep bool
	ended  bool
	more   sync.Cond // work has come, or the end
	kick   func()    // makes a sleeping reader return from its read

	doing []func() // the reader's: taken out of work
	done  int      // of doing
}

// post has the reader run f. After the connection's end it does nothing.
func (c *conn) post(f func()) {
	m := &c.mail
	m.mu.Lock()
	kick := m.asleep && !m.ended
	if !m.ended {
		m.work = append(m.work, f)
		m.more.Signal()
	}
	m.asleep = false
	m.mu.Unlock()
	if kick {
		m.kick()
	}
}

// rest says that the reader is going to sleep; false when there is work instead.
func (m *mailbox) rest() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asleep = len(m.work) == 0
	return m.asleep
}

func (m *mailbox) wake() {
	m.mu.Lock()
	m.asleep = false
	m.mu.Unlock()
}

// wait returns when there is work.
func (m *mailbox) wait() {
	m.mu.Lock()
	for len(m.work) == 0 && !m.ended {
		m.more.Wait()
	}
	m.mu.Unlock()
}

// end refuses all further work.
func (m *mailbox) end() {
	m.mu.Lock()
	m.ended, m.work = true, nil
	m.more.Signal()
	m.mu.Unlock()
}

// runMail does what was posted, and what that posts, in the order of posting even where that runs it again.
func (c *conn) runMail() {
	m := &c.mail
	for {
		if m.done == len(m.doing) {
			clear(m.doing)
			m.mu.Lock()
			m.doing, m.work = m.work, m.doing[:0]
			m.mu.Unlock()
			if m.done = 0; len(m.doing) == 0 {
				return
			}
		}
		f := m.doing[m.done]
		m.done++
		f()
	}
}
