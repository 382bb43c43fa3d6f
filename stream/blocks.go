package stream

const (
	// blockWindow is how much of a segment a block is for: the chunks that begin there.
	blockWindow = 192 << 10
	// blockBeyond is how much is read beyond the window at first: where chunks are small, the last one ends there.
	blockBeyond = 16 << 10
	// blockBuffer is the size of a buffer in which the blocks of most streams have room.
	blockBuffer = 256 << 10
)

// block is the block that has the chunk at a position of a segment, pinned. aligned: a block ends there, or the segment
// begins. If the chunk is damaged, the block ends before it, and says why.
func (l *Log) block(s segment, pos int64, aligned bool) (*block, error) {
	window := pos / blockWindow
	return l.o.Memory.load(blockKey{l.id, s.base, window}, pos, func(b *block) error {
		start := pos
		if !aligned && window*blockWindow > fileHeader {
			first, err := l.seekIn(s, func(b boundary) bool { return b.pos <= window*blockWindow },
				func(b boundary, _ Header) bool { return b.pos >= window*blockWindow })
			if err != nil && !isDamage(err) {
				return err
			}
			if err == nil {
				start = first.pos
			} // otherwise behind damage: what begins here is shared by those who come here
		} else if !aligned {
			start = fileHeader
		}
		err := l.readBlock(b, s, start, (window+1)*blockWindow)
		if err == nil && pos > b.start+b.n.Load() { // something before is damaged
			err = l.readBlock(b, s, pos, (window+1)*blockWindow)
		}
		return err
	})
}

// readBlock reads and checks the whole chunks of a segment that begin in [start, end).
func (l *Log) readBlock(b *block, s segment, start, end int64) error {
	f, err := l.o.Files.get(fileName(l.dir, s.base, segmentSuffix))
	if err != nil {
		return err
	}
	defer l.o.Files.put(f)
	b.base, b.start, b.bad = s.base, start, nil
	want := min(s.end.pos-start, end-start+blockBeyond)
	room := min(s.end.pos-start, max(blockBuffer, l.blockSize.Load())) // the next is often as large as the last one
	l.o.Memory.grow(b, int(max(want, room)), 0)
	have, err := f.ReadAt(b.buf[:want], start)
	if int64(have) < want {
		if err := orDamaged(err); !isDamage(err) {
			return err
		}
	}
	n := int64(0)
	for start+n < min(end, s.end.pos) {
		h, err := ParseHeader(b.buf[n:have])
		if err == nil && h.Size() > s.end.pos-start-n {
			err = ErrChunk
		}
		if err != nil && int64(have)-n < HeaderLen && start+int64(have) < s.end.pos && int64(have) == want {
			h, err = Header{Length: HeaderLen}, nil // the header itself is cut: read that much more, and look again
		}
		if err != nil {
			b.bad = err
			break
		}
		if h.Size() > int64(have)-n {
			more := min(n+h.Size(), s.end.pos-start)
			if more <= int64(have) || int64(have) < want { // the file is shorter than it should be
				b.bad = ErrChunk
				break
			}
			if more > int64(len(b.buf)) {
				var head headBuf
				if _, _, err := readHead(f, start+n, s.end.pos, &head); int64(have)-n >= HeaderLen && err != nil { // before memory is given for what it says
					if !isDamage(err) {
						return err
					}
					b.bad = err
					break
				}
				l.o.Memory.grow(b, int(more), have)
			}
			got, err := f.ReadAt(b.buf[have:more], start+int64(have))
			if got < int(more)-have {
				if err := orDamaged(err); !isDamage(err) {
					return err
				}
			}
			have += got
			want = more
			continue
		}
		c, err := ParseChunk(b.buf[n : n+h.Size()])
		if err != nil {
			b.bad = err
			break
		}
		n += c.Size()
	}
	b.n.Store(n)
	l.blockSize.Store(min(n, 1<<maxClass))
	return nil
}

// boundaryBehind is the offset of the first boundary in the index behind a position, the end of the segment included.
func (l *Log) boundaryBehind(s segment, pos int64) (uint64, error) {
	if s.index.n > 0 {
		f, err := l.o.Files.get(fileName(l.dir, s.base, indexSuffix))
		if err == nil {
			defer l.o.Files.put(f)
			for i := range s.index.n {
				b, err := readBoundary(f, s.base, i)
				if err == nil && b.pos > pos {
					return b.offset, nil
				}
				if err != nil && err != errBoundary {
					return 0, err
				}
			}
		} else if !gone(err) {
			return 0, err
		}
	}
	for _, b := range s.index.pending {
		if b.pos > pos {
			return b.offset, nil
		}
	}
	return s.end.offset, nil
}
