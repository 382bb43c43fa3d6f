package seeds

import "testing"

func TestSeed(t *testing.T) {
	a, _ := seed("TestA", "")
	again, _ := seed("TestA", "")
	b, _ := seed("TestB", "")
	if a != again || a == b {
		t.Errorf("%d, %d again, %d of another test", a, again, b)
	}
	x, _ := seed("TestA", "random")
	y, _ := seed("TestA", "random")
	if x == y || x == a {
		t.Errorf("at random %d and %d", x, y)
	}
	if n, err := seed("TestA", "42"); n != 42 || err != nil {
		t.Error(n, err)
	}
	if _, err := seed("TestA", "fast"); err == nil {
		t.Error("no error for nonsense")
	}
}
