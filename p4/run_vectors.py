"""Runs vectors through BMv2's simple_switch, and looks at a compiled program; scripts/p4-check calls it.

  run_vectors.py PROGRAM.json VECTORS.jsonl...
  run_vectors.py --commands VECTORS.jsonl         the tables and first registers of a port, as commands for simple_switch_CLI

The switch reads and writes its packets through pipes (--use-files), so it needs no interface and no rights. What the control program
writes goes to simple_switch_CLI, a command a line.
"""

import json
import os
import select
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Frames come from the first port; a group sends them to the port that has the allocator, and to one that has none.
ENTRY, PORT, PLAIN = 0, 1, 2
GROUP = 1
THRIFT = 9090
PATIENCE_S = 20
# All cells of all registers are compared after so many steps; after each step those of the port, and the bits of filters that it changes.
WHOLE = 64
# Commands that are on their way to simple_switch_CLI at once: their answers fit a pipe.
BATCH = 100

U64 = (1 << 64) - 1
LAST_RANK = (1 << 24) - 1
# P4's registers by the vectors' arrays, a register for each field.
FIELDS = {
    "active": ["Allocate.active"],
    "available_of": ["Allocate.available_of"],
    "count_a": ["Allocate.filter_a.count"],
    "count_b": ["Allocate.filter_b.count"],
    "critical_heard": ["Allocate.critical_heard"],
    "critical_of": ["Allocate.critical_transfer", "Allocate.critical_rank"],
    "critical_rate": ["Allocate.critical_rate"],
    "loads": ["Allocate.loads"],
    "reservation_of": [
        f"Allocate.reservation_{field}" for field in ("transfer", "rate", "until", "rank", "held")
    ],
}
FILTERS = {f"filter_{name}{at}": f"Allocate.filter_{name}.cells{at}" for name in "ab" for at in range(3)}


class Failure(Exception):
    """Something is not as the vectors say."""


def place_of(array, at):
    """Where a port's register of an array is in P4's."""
    return PORT << 1 | at if array == "loads" else PORT


def bits(word):
    return {bit for bit in range(64) if word >> bit & 1}


class Registers:
    """What the vectors say of a port, by array and place."""

    def __init__(self):
        self.words = {(array, 0): [0] * len(names) for array, names in FIELDS.items()}
        self.words["loads", 1] = [0]

    def change(self, writes):
        """Takes writes in; returns the cells of P4's registers that they change, with their values."""
        cells = []
        for array, at, value in writes:
            before = self.words.get((array, at), [0])
            self.words[array, at] = value
            if array in FILTERS:
                changed = bits(before[0] ^ value[0])
                cells += [(FILTERS[array], at << 6 | bit, value[0] >> bit & 1) for bit in sorted(changed)]
            else:
                cells += zip(FIELDS[array], [place_of(array, at)] * len(value), value)
        return cells

    def of_port(self):
        """The cells of all but the filters."""
        for (array, at), value in self.words.items():
            if array not in FILTERS:
                yield from zip(FIELDS[array], [place_of(array, at)] * len(value), value)

    def of_filters(self):
        """The set cells of each array of a filter."""
        of = {name: set() for name in FILTERS.values()}
        for (array, at), value in self.words.items():
            if array in FILTERS:
                of[FILTERS[array]] |= {at << 6 | bit for bit in bits(value[0])}
        return of


def shifts(text):
    """Entries of a table of divisions: eight shifts each."""
    return [" ".join(str(by) for by in bytes.fromhex(entry)) for entry in text.split()]


def table_commands(tables):
    """What the control program writes when the port is set up."""
    key0, key1 = tables["hash_key"]
    settings = [key0, key1, tables["filter_cells"] - 1, tables["line"], tables["unit"], tables["settling_ns"]]
    yield f"table_add ports configure {PORT} => {' '.join(map(str, settings))}"
    for divisor, entry in enumerate(shifts(tables["division"])):
        yield f"table_add division add_shifts {divisor} => {entry}"
    for at, entry in enumerate(shifts(tables["division_log"])):
        # 64 entries for each power of two from 2^10 on: seven bits are matched.
        octave, leading = 10 + (at >> 6), 64 + (at & 63)
        yield f"table_add division_log add_shifts {leading << octave - 6}/{38 - octave} => {entry}"


def register_commands(cells):
    return [f"register_write {name} {at} {value}" for name, at, value in cells]


def forwarding_commands(addresses):
    """A group that all frames are for."""
    yield f"mc_mgrp_create {GROUP}"
    yield f"mc_node_create 0 {PORT} {PLAIN}"
    yield f"mc_node_associate {GROUP} 0"
    for address in sorted(addresses):
        yield f"table_add forward to_group {address} => {GROUP}"


class Cli:
    """simple_switch_CLI behind pipes: a command in, its answer out."""

    PROMPT = b"RuntimeCmd: "

    def __init__(self, log):
        pipe = subprocess.PIPE
        command = ["simple_switch_CLI", "--thrift-port", str(THRIFT)]
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log)
        self.said = b""
        self.answer()

    def answer(self):
        while self.PROMPT not in self.said:
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                self.process.wait()
                raise Failure("simple_switch_CLI ended")
            self.said += more
        answer, self.said = self.said.split(self.PROMPT, 1)
        return answer.decode()

    def tell(self, commands):
        commands, answers = list(commands), []
        for first in range(0, len(commands), BATCH):
            batch = commands[first : first + BATCH]
            self.process.stdin.write("".join(f"{command}\n" for command in batch).encode())
            self.process.stdin.flush()
            for command in batch:
                answer = self.answer()
                if "rror" in answer or "nvalid" in answer:
                    raise Failure(f"simple_switch_CLI: {command}: {answer.strip()}")
                answers.append(answer)
        return answers

    def cells(self, places):
        """The values of cells."""
        answers = self.tell(f"register_read {name} {at}" for name, at in places)
        return [int(answer.split("=")[1]) & U64 for answer in answers]

    def whole(self, name):
        """The cells of a register that are not zero."""
        [answer] = self.tell([f"register_read {name}"])
        values = enumerate(answer.split("=")[1].split(","))
        return {at: int(value) & U64 for at, value in values if int(value)}

    def elapsed_us(self):
        [answer] = self.tell(["get_time_elapsed"])
        return int(answer)

    def end(self):
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)


class Packets:
    """A pipe in pcap's format at one side of a port."""

    HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)

    def __init__(self, path):
        os.mkfifo(path)
        # For both directions, so that nobody waits for the other to open it.
        self.pipe = os.open(path, os.O_RDWR)
        self.is_new = True

    def write(self, data):
        os.write(self.pipe, data)

    def send(self, frame):
        self.write(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)

    def receive(self):
        if self.is_new:
            self.take(len(self.HEADER))
            self.is_new = False
        _, _, length, _ = struct.unpack("<IIII", self.take(16))
        return self.take(length)

    def take(self, length):
        taken = b""
        while len(taken) < length:
            if not select.select([self.pipe], [], [], PATIENCE_S)[0]:
                raise Failure("a frame did not leave the switch")
            taken += os.read(self.pipe, length - len(taken))
        return taken


class Switch:
    """A simple_switch with a program, and its control."""

    def __init__(self, program, folder, log):
        self.cli = None
        self.entry = Packets(folder / f"{ENTRY}_in.pcap")
        self.entry.write(Packets.HEADER)
        self.out = [Packets(folder / f"{port}_out.pcap") for port in (PORT, PLAIN)]
        for port in (PORT, PLAIN):
            (folder / f"{port}_in.pcap").write_bytes(Packets.HEADER)
        interfaces = [word for port in (ENTRY, PORT, PLAIN) for word in ("-i", f"{port}@{folder}/{port}")]
        command = ["simple_switch", "--thrift-port", str(THRIFT), "--use-files", "0", *interfaces]
        self.process = subprocess.Popen([*command, program], stdout=log, stderr=log, cwd=folder)

    def connect(self, log):
        """Waits until its control port answers."""
        for _ in range(PATIENCE_S * 10):
            try:
                self.cli = Cli(log)
                return
            except Failure:
                if self.process.poll() is not None:
                    break
                time.sleep(0.1)
        raise Failure("simple_switch does not start")

    def pass_through(self, at_ns, frame):
        """Sends a frame at a time; returns it as it leaves the port, and as it leaves the one without an allocator."""
        self.cli.tell([f"table_set_default clock clock_at {at_ns}"])
        return self.send(frame)

    def send(self, frame):
        self.entry.send(frame)
        return [out.receive() for out in self.out]

    def end(self):
        if self.cli:
            self.cli.end()
        self.process.kill()
        self.process.wait()


def compare(what, expected, found):
    if expected != found:
        raise Failure(f"{what}: {found} instead of {expected}")


def as_held(cells):
    """Without what a reservation says that is not held."""
    cells = dict(cells)
    if not cells["Allocate.reservation_held", PORT]:
        cells.update({key: 0 for key in cells if key[0].startswith("Allocate.reservation")})
    return cells


def compare_registers(switch, expected, cells, whole):
    """Compares the port's cells, and the bits of filters that have changed; all cells of all registers if asked for."""
    port = {(name, at): value for name, at, value in expected.of_port()}
    filters = {(name, at): value for name, at, value in cells if name in FILTERS.values()}
    wanted = {**port, **filters}
    found = as_held(zip(wanted, switch.cli.cells(wanted)))
    for place, value in wanted.items():
        compare(f"{place[0]}[{place[1]}]", value, found[place])
    if not whole:
        return
    for name, cells in expected.of_filters().items():
        compare(name, sorted(cells), sorted(switch.cli.whole(name)))
    for names in FIELDS.values():
        for name in names:
            others = set(switch.cli.whole(name)) - {at for known, at in port if known == name}
            compare(f"{name} of other ports", set(), others)


# Where the headers end and the scheduling header stands in a payload, and how long that is.
IPV4_END, IPV6_END, UDP, SCHEDULING_AT, SCHEDULING = 34, 54, 8, 32, 10


def payload_at(frame):
    return (IPV4_END if frame[12:14] == b"\x08\0" else IPV6_END) + UDP


def checksum(frame):
    """UDP's, of the whole datagram."""
    at = payload_at(frame) - UDP
    addresses = frame[at - 8 : at] if at == IPV4_END else frame[at - 32 : at]
    summed = addresses + struct.pack(">HH", 17, len(frame) - at) + frame[at : at + 6] + b"\0\0" + frame[at + UDP :]
    words = struct.unpack(f">{(len(summed) + 1) // 2}H", summed + b"\0" * (len(summed) % 2))
    return 0xFFFF - (sum(words) - 1) % 0xFFFF - 1 or 0xFFFF


def changed(frame, *stretches):
    frame = bytearray(frame)
    for at, stretch in stretches:
        frame[at : at + len(stretch)] = stretch
    return bytes(frame)


def summed(frame):
    return changed(frame, (payload_at(frame) - 2, checksum(frame).to_bytes(2, "big")))


def others(frame):
    """What looks like a scheduled datagram and is none."""
    at = payload_at(frame)
    for length in range(14, at + SCHEDULING_AT + SCHEDULING):
        yield f"a frame of {length} bytes", frame[:length]
    yield "a symbol without the flag", changed(frame, (at, b"\x11\0"))
    yield "another version", changed(frame, (at, b"\x21\x10"))
    yield "no IP", changed(frame, (12, b"\x88\xb5"))
    if at == IPV4_END + UDP:
        yield "a first fragment", changed(frame, (20, b"\x20\0"))
        yield "another fragment", changed(frame, (20, b"\0\x08"))
        yield "IP options", changed(frame, (14, b"\x46"))
        yield "TCP", changed(frame, (23, b"\6"))
    else:
        yield "TCP", changed(frame, (20, b"\6"))


def last_symbols(frame, line, unit):
    """Symbols of a transfer that is about to end, before and after the port: each is granted the line, and changes no register but a load.
    Among their checksums is the one that stands for zero, and some whose mending carries twice."""
    at = payload_at(frame)
    offer_at = at + SCHEDULING_AT + 7
    granted = (offer_at, line.to_bytes(3, "big"))
    symbol = changed(frame, (at, b"\x11\x10\0\0"), (offer_at - 7, bytes([1 << 5 | unit])), (offer_at, b"\xff\xff\xff"))
    zero = checksum(changed(symbol, granted))
    for epoch in range(zero - 4, zero + 5):
        before = changed(symbol, (at + 2, (epoch % 0xFFFF).to_bytes(2, "big")))
        yield summed(before), summed(changed(before, granted))


def run_beyond(switch, expected, tables, frame):
    """Frames that the vectors lack; returns how many."""
    frames = [(what, other, other, 0) for what, other in others(frame)]
    symbols = list(last_symbols(frame, tables["line"], tables["unit"]))
    assert any(checksum(after) == 0xFFFF for _, after in symbols)
    frames += [("a last symbol", before, after, 1) for before, after in symbols]
    for what, before, after, load in frames:
        sent, plain = switch.pass_through(0, before)
        compare(what, after.hex(), sent.hex())
        compare(f"{what} at another port", before.hex(), plain.hex())
        expected.words["loads", load] = [expected.words["loads", load][0] + len(before)]
        compare_registers(switch, expected, [], what == "a last symbol")
    run_by_own_clock(switch, symbols[0][0])
    return len(frames) + 1


def run_by_own_clock(switch, symbol):
    """A transfer becomes critical now, by the clock of the switch."""
    kind_at = payload_at(symbol) + SCHEDULING_AT
    data = summed(changed(symbol, (kind_at, b"\0\0\0\0")))
    commands = ["table_set_default clock clock_of_switch", f"register_write Allocate.critical_rank {PORT} {LAST_RANK}"]
    switch.cli.tell(commands)
    before = switch.cli.elapsed_us()
    switch.send(data)
    [heard] = switch.cli.cells([("Allocate.critical_heard", PORT)])
    if not before * 1000 <= heard <= switch.cli.elapsed_us() * 1000:
        raise Failure(f"the switch's clock is {heard} ns, {before} us before")


def run(program, path, log):
    """Runs one file; returns how many frames passed, how many of them with another offer, and how many frames more."""
    tables, begin, *steps = (json.loads(line) for line in path.read_text().splitlines())
    frames = [bytes.fromhex(step["frame"]) for step in steps if "frame" in step]
    lowered, expected = 0, Registers()
    with tempfile.TemporaryDirectory() as folder:
        switch = Switch(program, Path(folder), log)
        try:
            switch.connect(log)
            switch.cli.tell(forwarding_commands({frame[:6].hex(":") for frame in frames}))
            switch.cli.tell(table_commands(tables["tables"]))
            switch.cli.tell(register_commands(expected.change(begin["begin"])))
            for number, step in enumerate(steps):
                try:
                    lowered += run_step(switch, expected, step, number % WHOLE == 0 or number + 1 == len(steps))
                except Failure as failure:
                    raise Failure(f"{path.name} line {number + 3}: {failure}") from None
            scheduled = next(bytes.fromhex(step["frame"]) for step in steps if step.get("changed"))
            more = run_beyond(switch, expected, tables["tables"], scheduled)
        finally:
            switch.end()
    return len(frames), lowered, more


def run_step(switch, expected, step, whole):
    if "control" in step:
        switch.cli.tell(register_commands(expected.change(step["control"])))
        cells = []
    else:
        frame = bytes.fromhex(step["frame"])
        wanted = changed(frame, *((at, bytes.fromhex(stretch)) for at, stretch in step["changed"] or []))
        sent, plain = switch.pass_through(step["at_ns"], frame)
        compare("the frame that leaves", wanted.hex(), sent.hex())
        compare("the frame that leaves another port", frame.hex(), plain.hex())
        cells = expected.change(step["registers"])
    compare_registers(switch, expected, cells, whole)
    return step.get("changed") is not None


def look_at(program):
    """Whether the compiled program multiplies or divides, and how often it reads and writes each array of registers."""
    config = json.loads(Path(program).read_text())
    touched = {array["name"]: [] for array in config["register_arrays"]}
    primitives = [primitive for action in config["actions"] for primitive in action["primitives"]]
    assigned = {}
    for primitive in primitives:
        if primitive["op"] == "assign":
            to, value = (parameter["value"] for parameter in primitive["parameters"])
            assigned.setdefault(str(to), []).append(value)

    def source(value):
        """What a variable of the compiler's is a copy of."""
        while len(copies := assigned.get(str(value), [])) == 1:
            [value] = copies
        return value

    def visit(node):
        if isinstance(node, list):
            for it in node:
                visit(it)
        elif isinstance(node, dict):
            if node.get("op") in ("*", "/", "%"):
                raise Failure(f"the program has an operator {node['op']}")
            if node.get("op") in ("register_read", "register_write"):
                verb = node["op"].removeprefix("register_")
                array, index = node["parameters"][slice(1, 3) if verb == "read" else slice(0, 2)]
                touched[array["value"]].append((verb, source(index["value"])))
            visit(list(node.values()))

    visit([config["actions"], config["pipelines"], config["parsers"]])
    for name, accesses in touched.items():
        verbs = sorted(verb for verb, _ in accesses)
        if verbs not in (["read"], ["read", "write"]):
            raise Failure(f"a packet does this with {name}: {', '.join(verbs)}")
        if any(index != accesses[0][1] for _, index in accesses):
            raise Failure(f"a packet touches {name} at two places")
    return len(touched)


def main():
    if sys.argv[1] == "--commands":
        tables, begin = (json.loads(line) for line in Path(sys.argv[2]).read_text().splitlines()[:2])
        print("\n".join(table_commands(tables["tables"])))
        print("\n".join(register_commands(Registers().change(begin["begin"]))))
        return
    program, *paths = sys.argv[1:]
    program = str(Path(program).resolve())
    with tempfile.TemporaryFile() as log:
        try:
            arrays = look_at(program)
            print(f"no multiplication, no division; {arrays} arrays of registers, each touched once for a packet")
            for path in map(Path, paths):
                began = time.monotonic()
                frames, lowered, more = run(program, path, log)
                took = time.monotonic() - began
                done = f"{frames} frames, {lowered} of them with a lower offer, and {more} beside the vectors"
                print(f"{path.name}: {done} ({took:.0f} s)", flush=True)
        except Failure as failure:
            log.seek(0)
            tail = log.read().decode(errors="replace").splitlines()[-20:]
            sys.exit("\n".join([*tail, f"p4-check: {failure}"]))


main()
