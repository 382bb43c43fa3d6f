package exchange

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/warrenmq/warren/amqp"
)

// Text renders the value of an argument as error texts show it: strings as they are, the rest much as Erlang prints it.
func Text(v amqp.Value) string {
	if s, ok := v.Bytes(); ok {
		return string(s)
	}
	return term(v)
}

func term(v amqp.Value) string {
	if n, ok := v.Int(); ok {
		return strconv.FormatInt(n, 10)
	}
	if b, ok := v.Bool(); ok {
		return strconv.FormatBool(b)
	}
	if f, ok := v.Float(); ok {
		s := strconv.FormatFloat(f, 'g', -1, 64)
		if !strings.ContainsAny(s, ".") {
			s = strings.Replace(s+".0", "e", ".0e", 1)
			if strings.Contains(s, "e") {
				s = strings.TrimSuffix(s, ".0")
			}
		}
		return s
	}
	if n, ok := v.Timestamp(); ok {
		return strconv.FormatUint(n, 10)
	}
	if s, ok := v.Bytes(); ok {
		return amqp.ErlangBinary(s)
	}
	if scale, n, ok := v.Decimal(); ok {
		return fmt.Sprintf("{%d,%d}", scale, n)
	}
	var list []string
	if a, ok := v.Array(); ok {
		for e := range a.All() {
			list = append(list, "{"+e.TypeName()+","+term(e)+"}")
		}
	} else if t, ok := v.Table(); ok {
		for k, e := range t.All() {
			list = append(list, "{"+amqp.ErlangBinary(k)+","+e.TypeName()+","+term(e)+"}")
		}
	} else {
		return "undefined"
	}
	return "[" + strings.Join(list, ",") + "]"
}
