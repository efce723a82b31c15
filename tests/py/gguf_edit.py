"""Where things stand in a GGUF file, so that tests can damage one of them at a time."""
import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9


class Gguf:
    """keys: name -> (value type, offset of the value). tensors: name -> offsets of its fields."""

    def __init__(self, data):
        self.data = bytearray(data)
        self.at = 8
        n_tensor, n_key = self.u64(), self.u64()
        self.keys, self.tensors = {}, {}
        for _ in range(n_key):
            name, kind = self.string(), self.u32()
            self.keys[name] = (kind, self.at)
            self.skip(kind)
        for _ in range(n_tensor):
            name_at = self.at + 8
            name, n_dims = self.string(), self.u32()
            dims_at = self.at
            self.at += 8 * n_dims
            self.tensors[name] = {"name": name_at, "dims": dims_at, "n_dims": n_dims,
                                  "type": self.at, "offset": self.at + 4}
            self.at += 12
        self.data_at = (self.at + 31) // 32 * 32

    def u32(self):
        self.at += 4
        return struct.unpack_from("<I", self.data, self.at - 4)[0]

    def u64(self):
        self.at += 8
        return struct.unpack_from("<Q", self.data, self.at - 8)[0]

    def string(self):
        n = self.u64()
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def skip(self, kind):
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            of, n = self.u32(), self.u64()
            if of in SIZES:
                self.at += SIZES[of] * n
            else:
                for _ in range(n):
                    self.skip(of)
        else:
            self.at += SIZES[kind]

    def put(self, at, form, *values):
        struct.pack_into("<" + form, self.data, at, *values)
        return self

    def rename_key(self, old, new):
        """Another name of the same length."""
        value_at = self.keys[old][1]
        at = self.data.rindex(old.encode(), 0, value_at)
        assert len(old) == len(new)
        self.data[at:at + len(old)] = new.encode()
        return self
