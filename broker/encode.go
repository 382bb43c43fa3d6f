package broker

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/warrenmq/warren/amqp"
)

// A command in octets, as it lies on disk and will travel between nodes:
//
//	+------+---------+--------+--------+
//	| kind | version | field  | field  | ...
//	| 1    | 1       |        |        |
//	+------+---------+--------+--------+
//
// Fields come in the order in which code names them: a string or table as its length (uvarint) and its octets, a list of
// strings as its length (uvarint) and the strings, a number as an uvarint, up to eight flags as one octet, the first named
// being the lowest bit. Kinds and versions are never given another meaning. Who changes the fields of a kind raises its version,
// and decodes the earlier ones too.
type kind uint8

const (
	kindPutVHost kind = 1 + iota
	kindDeleteVHost
	kindPutUser
	kindDeleteUser
	kindSetPermissions
	kindClearPermissions
	kindSetTopicPermissions
	kindClearTopicPermissions
	kindPutExchange
	kindDeleteExchange
	kindPutQueue
	kindDeleteQueue
	kindBind
	kindUnbind
	kindPutPolicy
	kindDeletePolicy
	kindSetParameter
	kindClearParameter
	kindSetGlobalParameter
	kindClearGlobalParameter
	kindSetUserLimits
	kindPutMember
	kindDeleteMember
	kindPutSlots
	kindPutReplica
	kindEnd // none
)

// version is the format in which a kind is written.
func (k kind) version() byte {
	switch k {
	case kindPutVHost, kindDeleteExchange, kindPutQueue, kindPutMember, kindDeleteMember, kindPutSlots:
		return 2
	}
	return 1
}

// AppendCommand appends the octets of a command.
func AppendCommand(dst []byte, cmd Command) []byte {
	c := coder{b: dst}
	switch cmd := cmd.(type) {
	case PutVHost:
		c.encode(kindPutVHost, &cmd)
	case DeleteVHost:
		c.encode(kindDeleteVHost, &cmd)
	case PutUser:
		c.encode(kindPutUser, &cmd)
	case DeleteUser:
		c.encode(kindDeleteUser, &cmd)
	case SetPermissions:
		c.encode(kindSetPermissions, &cmd)
	case ClearPermissions:
		c.encode(kindClearPermissions, &cmd)
	case SetTopicPermissions:
		c.encode(kindSetTopicPermissions, &cmd)
	case ClearTopicPermissions:
		c.encode(kindClearTopicPermissions, &cmd)
	case PutExchange:
		c.encode(kindPutExchange, &cmd)
	case DeleteExchange:
		c.encode(kindDeleteExchange, &cmd)
	case PutQueue:
		c.encode(kindPutQueue, &cmd)
	case DeleteQueue:
		c.encode(kindDeleteQueue, &cmd)
	case Bind:
		c.encode(kindBind, &cmd)
	case Unbind:
		c.encode(kindUnbind, &cmd)
	case PutPolicy:
		c.encode(kindPutPolicy, &cmd)
	case DeletePolicy:
		c.encode(kindDeletePolicy, &cmd)
	case SetParameter:
		c.encode(kindSetParameter, &cmd)
	case ClearParameter:
		c.encode(kindClearParameter, &cmd)
	case SetGlobalParameter:
		c.encode(kindSetGlobalParameter, &cmd)
	case ClearGlobalParameter:
		c.encode(kindClearGlobalParameter, &cmd)
	case SetUserLimits:
		c.encode(kindSetUserLimits, &cmd)
	case PutMember:
		c.encode(kindPutMember, &cmd)
	case DeleteMember:
		c.encode(kindDeleteMember, &cmd)
	case PutSlots:
		c.encode(kindPutSlots, &cmd)
	case PutReplica:
		c.encode(kindPutReplica, &cmd)
	default:
		panic("broker: unknown command")
	}
	return c.b
}

// DecodeCommand reads the octets of a command, of which it keeps none. It refuses kinds and versions that this node does
// not know: a newer one has written them.
func DecodeCommand(b []byte) (Command, error) {
	if len(b) < 2 {
		return nil, fmt.Errorf("command of %d octets", len(b))
	}
	k := kind(b[0])
	if k < kindPutVHost || k >= kindEnd {
		return nil, fmt.Errorf("command of unknown kind %d: written by a newer version", k)
	}
	if b[1] == 0 || b[1] > k.version() {
		return nil, fmt.Errorf("command of kind %d has format version %d, and %d is the last one known here: written by a newer version", k, b[1], k.version())
	}
	c := &coder{b: b[2:], decoding: true, version: b[1]}
	switch k {
	case kindPutVHost:
		return decode[PutVHost](c)
	case kindDeleteVHost:
		return decode[DeleteVHost](c)
	case kindPutUser:
		return decode[PutUser](c)
	case kindDeleteUser:
		return decode[DeleteUser](c)
	case kindSetPermissions:
		return decode[SetPermissions](c)
	case kindClearPermissions:
		return decode[ClearPermissions](c)
	case kindSetTopicPermissions:
		return decode[SetTopicPermissions](c)
	case kindClearTopicPermissions:
		return decode[ClearTopicPermissions](c)
	case kindPutExchange:
		return decode[PutExchange](c)
	case kindDeleteExchange:
		return decode[DeleteExchange](c)
	case kindPutQueue:
		return decode[PutQueue](c)
	case kindDeleteQueue:
		return decode[DeleteQueue](c)
	case kindBind:
		return decode[Bind](c)
	case kindUnbind:
		return decode[Unbind](c)
	case kindPutPolicy:
		return decode[PutPolicy](c)
	case kindDeletePolicy:
		return decode[DeletePolicy](c)
	case kindSetParameter:
		return decode[SetParameter](c)
	case kindClearParameter:
		return decode[ClearParameter](c)
	case kindSetGlobalParameter:
		return decode[SetGlobalParameter](c)
	case kindClearGlobalParameter:
		return decode[ClearGlobalParameter](c)
	case kindPutMember:
		return decode[PutMember](c)
	case kindDeleteMember:
		return decode[DeleteMember](c)
	case kindPutSlots:
		return decode[PutSlots](c)
	case kindPutReplica:
		return decode[PutReplica](c)
	default:
		return decode[SetUserLimits](c)
	}
}

func (x *PutVHost) code(c *coder) {
	c.str(&x.Name)
	c.str(&x.Description)
	c.strs(&x.Tags)
	c.str(&x.DefaultQueueType)
	if c.version >= 2 {
		c.flags(&x.Default)
	}
}

func (x *DeleteVHost) code(c *coder) { c.str(&x.Name) }

func (x *PutUser) code(c *coder) {
	c.str(&x.User.Name)
	c.octets(&x.User.Hash)
	algorithm := uint64(x.User.Algorithm)
	c.num(&algorithm)
	if algorithm > uint64(MD5) {
		c.fail("password hash %d", algorithm)
	}
	x.User.Algorithm = Algorithm(algorithm)
	c.strs(&x.User.Tags)
}

func (x *DeleteUser) code(c *coder) { c.str(&x.Name) }

func (x *SetPermissions) code(c *coder) {
	c.str(&x.VHost)
	c.str(&x.User)
	c.str(&x.Configure)
	c.str(&x.Write)
	c.str(&x.Read)
}

func (x *ClearPermissions) code(c *coder) {
	c.str(&x.VHost)
	c.str(&x.User)
}

func (x *SetTopicPermissions) code(c *coder) {
	c.str(&x.VHost)
	c.str(&x.User)
	c.str(&x.Exchange)
	c.str(&x.Write)
	c.str(&x.Read)
}

func (x *ClearTopicPermissions) code(c *coder) {
	c.str(&x.VHost)
	c.str(&x.User)
	c.str(&x.Exchange)
	c.flags(&x.All)
}

func (x *PutExchange) code(c *coder) {
	c.str(&x.VHost)
	c.str(&x.Exchange.Name)
	c.str(&x.Exchange.Type)
	c.flags(&x.Exchange.Durable, &x.Exchange.AutoDelete, &x.Exchange.Internal)
	c.table(&x.Exchange.Arguments)
}

func (x *DeleteExchange) code(c *coder) {
	c.str(&x.VHost)
	c.str(&x.Name)
	if c.version >= 2 {
		c.flags(&x.IfUnused, &x.Auto)
	} else {
		c.flags(&x.IfUnused)
	}
}

func (x *PutQueue) code(c *coder) {
	c.str(&x.VHost)
	c.str(&x.Queue.Name)
	c.flags(&x.Queue.Durable, &x.Queue.Exclusive, &x.Queue.AutoDelete, &x.Soft)
	c.table(&x.Queue.Arguments)
	c.num(&x.Owner)
	c.num((*uint64)(&x.ID))
	if c.version >= 2 {
		c.num(&x.Home)
	}
}

func (x *DeleteQueue) code(c *coder) {
	c.str(&x.VHost)
	c.str(&x.Name)
	c.num((*uint64)(&x.ID))
	c.flags(&x.Soft)
}

func (x *Bind) code(c *coder) {
	c.str(&x.VHost)
	x.Binding.code(c, &x.Soft)
}

func (x *Unbind) code(c *coder) {
	c.str(&x.VHost)
	x.Binding.code(c, &x.Soft)
}

func (x *Binding) code(c *coder, soft *bool) {
	c.str(&x.Source)
	c.str(&x.Destination)
	c.flags(&x.ToExchange, soft)
	c.str(&x.Key)
	c.table(&x.Arguments)
}

func (x *PutPolicy) code(c *coder) {
	c.str(&x.VHost)
	c.flags(&x.Operator)
	p := &x.Policy
	c.str(&p.Name)
	c.str(&p.Pattern)
	c.str(&p.ApplyTo)
	c.signed(&p.Priority)
	var definition []byte
	if !c.decoding {
		definition, _ = encodeJSON(p.Definition) // a copy made by JSON
	}
	if c.json(&definition); c.decoding && c.err == nil {
		v, err := DecodeJSON(definition)
		var ok bool
		if p.Definition, ok = v.(map[string]any); !ok && (v != nil || err != nil) {
			c.fail("policy whose definition is no object")
		}
	}
}

func (x *DeletePolicy) code(c *coder) {
	c.str(&x.VHost)
	c.flags(&x.Operator)
	c.str(&x.Name)
}

func (x *SetParameter) code(c *coder) {
	c.str(&x.VHost)
	c.str(&x.Component)
	c.str(&x.Name)
	c.json(&x.Value)
}

func (x *ClearParameter) code(c *coder) {
	c.str(&x.VHost)
	c.str(&x.Component)
	c.str(&x.Name)
}

func (x *SetGlobalParameter) code(c *coder) {
	c.str(&x.Name)
	c.json(&x.Value)
}

func (x *ClearGlobalParameter) code(c *coder) { c.str(&x.Name) }

func (x *SetUserLimits) code(c *coder) {
	c.str(&x.User)
	c.json(&x.Limits)
}

func (x *PutMember) code(c *coder) {
	m := &x.Member
	c.num(&m.Number)
	c.num(&m.NodeID)
	c.str(&m.Name)
	c.str(&m.Address)
	c.short(&m.Least)
	c.short(&m.Most)
	if c.version >= 2 {
		c.num(&m.Start)
		c.num(&m.Mark)
	}
}

func (x *DeleteMember) code(c *coder) {
	c.num(&x.Number)
	if c.version >= 2 {
		c.members(&x.Rest)
	}
}

func (x *PutSlots) code(c *coder) {
	c.num(&x.Count)
	c.members(&x.Members)
	if c.version >= 2 {
		c.num(&x.Size)
	}
}

func (x *PutReplica) code(c *coder) {
	c.num(&x.Shard)
	c.num(&x.Member)
	c.num((*uint64)(&x.Vote))
	c.num(&x.Generation)
}

// members are numbers of members.
func (c *coder) members(list *[]uint64) {
	n := uint64(len(*list))
	c.num(&n)
	switch {
	case !c.decoding || n == 0:
	case n <= uint64(len(c.b)):
		*list = make([]uint64, n)
	default:
		c.fail("%d members in what is left of %d octets", n, len(c.b))
		return
	}
	for i := range *list {
		c.num(&(*list)[i])
	}
}

// coder appends fields to b, or takes them off its front.
type coder struct {
	b        []byte
	decoding bool
	version  byte  // of the kind
	err      error // of decoding: the first
}

// coded is a pointer to a command.
type coded interface{ code(*coder) }

func (c *coder) encode(k kind, cmd coded) {
	c.version = k.version()
	c.b = append(c.b, byte(k), c.version)
	cmd.code(c)
}

func decode[T Command, P interface {
	*T
	coded
}](c *coder) (Command, error) {
	var cmd T
	P(&cmd).code(c)
	if len(c.b) > 0 {
		c.fail("%d octets too many", len(c.b))
	}
	if c.err != nil {
		return nil, c.err
	}
	return cmd, nil
}

func (c *coder) fail(format string, args ...any) {
	if c.decoding && c.err == nil {
		c.err = fmt.Errorf("command: "+format, args...)
		c.b = nil
	}
}

func (c *coder) num(n *uint64) {
	if !c.decoding {
		c.b = binary.AppendUvarint(c.b, *n)
		return
	}
	v, size := binary.Uvarint(c.b)
	if size <= 0 {
		c.fail("ends in a number")
		return
	}
	*n, c.b = v, c.b[size:]
}

// short is a number below 65,536.
func (c *coder) short(n *uint16) {
	v := uint64(*n)
	c.num(&v)
	if v > 1<<16-1 {
		c.fail("%d is too large", v)
		return
	}
	*n = uint16(v)
}

// take is the next field of variable length, in place.
func (c *coder) take() []byte {
	var n uint64
	c.num(&n)
	if n > uint64(len(c.b)) {
		c.fail("ends in a string")
		return nil
	}
	field := c.b[:n]
	c.b = c.b[n:]
	return field
}

func (c *coder) str(s *string) {
	if !c.decoding {
		c.b = append(binary.AppendUvarint(c.b, uint64(len(*s))), *s...)
		return
	}
	*s = string(c.take())
}

func (c *coder) octets(b *[]byte) {
	if !c.decoding {
		c.b = append(binary.AppendUvarint(c.b, uint64(len(*b))), *b...)
		return
	}
	if field := c.take(); len(field) > 0 {
		*b = append([]byte(nil), field...)
	}
}

// json is octets that are a JSON value.
func (c *coder) json(b *[]byte) {
	if c.octets(b); c.decoding && c.err == nil && len(*b) > 0 && !json.Valid(*b) {
		c.fail("JSON that is none")
	}
}

// signed is a number that may be negative, zigzag.
func (c *coder) signed(n *int64) {
	u := uint64(*n)<<1 ^ uint64(*n>>63)
	c.num(&u)
	*n = int64(u>>1) ^ -int64(u&1)
}

func (c *coder) table(t *amqp.Table) {
	c.octets((*[]byte)(t))
	if c.decoding && t.Validate() != nil {
		c.fail("a table that is none")
	}
}

func (c *coder) strs(list *[]string) {
	n := uint64(len(*list))
	c.num(&n)
	if !c.decoding {
		for i := range *list {
			c.str(&(*list)[i])
		}
		return
	}
	if n > uint64(len(c.b)) { // each takes an octet at least
		c.fail("ends in a list")
		return
	}
	for range n {
		var s string
		c.str(&s)
		*list = append(*list, s)
	}
}

func (c *coder) flags(flags ...*bool) {
	if !c.decoding {
		var b byte
		for i, f := range flags {
			if *f {
				b |= 1 << i
			}
		}
		c.b = append(c.b, b)
		return
	}
	if len(c.b) == 0 || c.b[0]>>len(flags) != 0 {
		c.fail("flags missing or unknown")
		return
	}
	for i, f := range flags {
		*f = c.b[0]>>i&1 != 0
	}
	c.b = c.b[1:]
}
