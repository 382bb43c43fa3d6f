package message

import "testing"

// TestRead: a body tells its message, and no other body does.
func TestRead(t *testing.T) {
	for _, size := range []int{0, 24, 25, 600} {
		m := Of(7, 12345)
		b := Body(m, size)
		if got, ok := Read(b); !ok || got != m {
			t.Fatalf("%d octets: %v, %v", size, got, ok)
		}
		for i := range b {
			b[i] ^= 1
			if got, ok := Read(b); ok {
				t.Errorf("%d octets, octet %d changed: still %v", size, i, got)
			}
			b[i] ^= 1
		}
		if _, ok := Read(b[:len(b)-1]); ok {
			t.Errorf("%d octets: one less is as good", size)
		}
	}
	if m := Of(7, 12345); m.Publisher() != 7 || m.String() != "7/12345" {
		t.Error(m)
	}
}
