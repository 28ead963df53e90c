"""A disk as it is after a power loss: replays the calls that sync_log.cc recorded, and says what is left.

The model is stricter than common file systems. A file's bytes survive when the file was synced after they were written.
A name survives when its folder was synced after the name was made, moved or removed; a folder's own name lies in its
parent. What was not synced may survive or not, each call on its own, a write also by halves.
"""


class File:
    def __init__(self):
        self.data = bytearray()
        self.pending = []  # (offset, bytes) or (size, None) since the last sync
        self.durable = b""

    def write(self, offset, data):
        self.pending.append((offset, data))
        apply_write(self.data, offset, data)

    def sync(self):
        self.pending, self.durable = [], bytes(self.data)

    def after_loss(self, chance):
        data = bytearray(self.durable)
        for offset, written in self.pending:
            if chance is not None and chance.random() < 0.5:
                kept = written if written is None or chance.random() < 0.5 else written[:chance.randrange(len(written) + 1)]
                apply_write(data, offset, kept)
        return bytes(data)


class Folder:
    def __init__(self):
        self.names = {}
        self.pending = []  # [(name, file or folder or None for none), ...] of each call since the last sync
        self.durable = {}

    def change(self, *entries):
        """One call: all of its entries survive, or none."""
        self.pending.append(entries)
        apply_entries(self.names, entries)

    def sync(self):
        self.pending, self.durable = [], dict(self.names)

    def after_loss(self, chance):
        names = dict(self.durable)
        for entries in self.pending:
            if chance is not None and chance.random() < 0.5:
                apply_entries(names, entries)
        return {name: node.after_loss(chance) for name, node in names.items()}


def apply_write(data, offset, written):
    if written is None:  # truncated to `offset` bytes
        del data[offset:]
        data.extend(bytes(offset - len(data)))
        return
    data.extend(bytes(max(0, offset - len(data))))
    data[offset:offset + len(written)] = written


def apply_entries(names, entries):
    for name, node in entries:
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class Disk:
    """The folder whose inode is `root`, empty at first; what lies elsewhere is not modelled."""

    def __init__(self, root):
        self.root = Folder()
        self.nodes = {str(root): self.root}

    def apply(self, words, data):
        kind, *rest = words
        if kind in ("create", "mkdir"):
            node = self.nodes[rest[2]] = File() if kind == "create" else Folder()
            self.nodes[rest[0]].change((name_of(rest[1]), node))
        elif kind == "link":
            self.nodes[rest[0]].change((name_of(rest[1]), self.nodes[rest[2]]))
        elif kind == "remove":
            self.nodes[rest[0]].change((name_of(rest[1]), None))
        elif kind in ("rename", "exchange"):
            folder, other = self.nodes[rest[0]], self.nodes[rest[2]]
            assert folder is other, "a rename from folder to folder has two halves, which the model does not know"
            source, target = name_of(rest[1]), name_of(rest[3])
            back = folder.names[target] if kind == "exchange" else None
            folder.change((target, folder.names[source]), (source, back))
        elif rest[0] in self.nodes:  # a file that was there before is not modelled
            node = self.nodes[rest[0]]
            if kind == "sync":
                node.sync()
            elif kind == "truncate":
                node.write(int(rest[1]), None)
            elif kind == "write":
                node.write(int(rest[1]), data)


def name_of(digits):
    return bytes.fromhex(digits).decode()


def read_log(path):
    """[(words, bytes), ...] in the order in which they were done."""
    records, log, at = [], path.read_bytes(), 0
    while at < len(log):
        end = log.index(b"\n", at)
        words = log[at:end].decode().split()
        length = int(words[-1]) if words[0] in ("write", "report") else 0
        records.append((words, log[end + 1:end + 1 + length]))
        at = end + 1 + length
    return records


def contents(node):
    """{name: bytes or the same again} of what a process sees now."""
    return bytes(node.data) if isinstance(node, File) else {name: contents(child) for name, child in node.names.items()}


def make(path, tree):
    """Writes what after_loss() returned to a real folder."""
    path.mkdir()
    for name, content in tree.items():
        if isinstance(content, dict):
            make(path / name, content)
        else:
            (path / name).write_bytes(content)
