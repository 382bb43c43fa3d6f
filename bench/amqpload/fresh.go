package main

// freshKeys numbers topic keys that no publisher has sent before, in this run or an earlier one.
//
// A run's numbers begin at its wall clock in nanoseconds and are dealt to its publishers in turn.
// A run sends fewer than one message a nanosecond, so its numbers stay behind the clock, and a run
// that begins after its end begins above them. Without that a cache of routes would know the keys of
// the second round from the first.
type freshKeys struct {
	next, step uint64
}

func newFreshKeys(w *workload, producer uint64) freshKeys {
	return freshKeys{w.freshFrom + producer, uint64(w.Producers)}
}

// put writes the next number in base 36, freshDigits wide, at the start of dst.
func (k *freshKeys) put(dst []byte) {
	const digits = "0123456789abcdefghijklmnopqrstuvwxyz"
	n := k.next
	k.next += k.step
	for i := freshDigits - 1; i >= 0; i-- {
		dst[i] = digits[n%36]
		n /= 36
	}
}
