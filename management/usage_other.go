//go:build !linux

package management

func (u *usage) fill(string) {}
