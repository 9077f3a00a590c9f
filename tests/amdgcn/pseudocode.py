"""Runs the pseudocode of AMD's instruction documents, as tinygrad's wheel carries it.

An oracle that shares no code with the interpreter under test: it works lane by lane on Python integers
and floats. Values know their kind ("u", "i", "f", "b") and width; storage is plain bits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from .pseudonumbers import FUNCTIONS, Value, convert, from_bits, operate, to_bits, truth

_TOKEN = re.compile(
    r"\s*(?:(\d+'(?:BF|[UIFB]))(?=\()|(\d+'0x[0-9a-fA-F]+|\d+'\d+\.\d+|\d+'\d+U?|0x[0-9a-fA-F]+U?L*|\d+\.\d+F?|\d+U?L*F?)"
    r"|([A-Za-z_]\w*)|(\*\*|<<|>>|<>|<=|>=|==|!=|&&|\|\||\+=|-=|[-+*/%&|^~!<>=?:;,.()\[\]{}']))"
)
_LEVELS = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">=", "<>"), ("<<", ">>"),
    ("+", "-"), ("*", "/", "%"), ("**",),
)  # fmt: skip
_STOPS = ("endif", "elsif", "else", "endfor")


@dataclass
class Storage:
    """A variable: bits, and the kind and width of what was stored last. Arrays keep their cells."""

    bits: int = 0
    kind: str = "b"
    width: int = 64
    cells: dict[int, Storage] | None = None

    def read(self) -> Value:
        return from_bits(self.bits, self.kind, self.width)

    def write(self, value: Value) -> None:
        self.bits, self.kind, self.width = to_bits(value, value.width), value.kind, value.width


class Bytes:
    """MEM of the pseudocode: little-endian bytes by address."""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)

    def read(self, address: int, width: int) -> int:
        return int.from_bytes(self.data[address : address + width // 8], "little")

    def write(self, address: int, bits: int, width: int) -> None:
        self.data[address : address + width // 8] = bits.to_bytes(width // 8, "little")


@dataclass
class Registers:
    """VGPR of the pseudocode: values[register][lane]; numbers: which register a name stands for."""

    values: dict[int, list[int]]
    numbers: dict[str, int]

    def __call__(self, lane: int, node: Any) -> int:
        return self.values[self.numbers[_root(node)]][lane]

    def write(self, lane: int, node: Any, bits: int) -> None:
        self.values[self.numbers[_root(node)]][lane] = bits


class Returned(Exception):
    """A lambda's result on its way out."""


class Broken(Exception):
    """A loop was left."""


class Program:
    """One instruction's pseudocode, parsed. `run` executes it on a dictionary of storages."""

    def __init__(self, text: str) -> None:
        text = re.sub(r"//[^\n]*", "", text)
        self._tokens: list[str] = []
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                raise ValueError(f"pseudocode not understood at {text[position : position + 30]!r}")
            self._tokens.append(next(part for part in match.groups() if part))
            position = match.end()
        self._at = 0
        self._tree = self._statements()
        if self._at < len(self._tokens):
            raise ValueError(f"pseudocode not understood at {self._tokens[self._at : self._at + 5]}")

    def run(self, names: dict[str, Any]) -> None:
        _execute(self._tree, names)

    # parsing ----------------------------------------------------------------------------------

    def _peek(self, ahead: int = 0) -> str:
        return self._tokens[self._at + ahead] if self._at + ahead < len(self._tokens) else ""

    def _next(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1]

    def _accept(self, *options: str) -> bool:
        if self._peek() in options:
            self._at += 1
            return True
        return False

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise ValueError(f"required {token!r}, found {self._peek()!r}")

    def _statements(self) -> list[Any]:
        found = []
        while self._peek() and self._peek() not in (*_STOPS, ")"):
            found.append(self._statement())
            self._accept(";")
        return found

    def _statement(self) -> Any:
        if self._accept("declare"):
            name = self._next()
            self._expect(":")
            kind = self._next()
            if self._accept("'"):
                kind += self._next()
            is_array = self._accept("[")
            if is_array:
                self._expression()
                self._expect("]")
            return ("declare", name, is_array)
        if self._accept("if"):
            return self._if()
        if self._accept("for"):
            name = self._next()
            self._expect("in")
            first = self._expression()
            self._expect(":")
            last = self._expression()
            self._expect("do")
            body = self._statements()
            self._expect("endfor")
            return ("for", name, first, last, body)
        if self._accept("break"):
            return ("break",)
        if self._accept("return"):
            return ("return", self._expression())
        target = self._postfix()
        operator = self._next()
        if operator not in ("=", "+=", "-="):
            raise ValueError(f"required an assignment, found {operator!r}")
        value = self._expression()
        if operator != "=":
            value = ("binary", operator[0], target, value)
        return ("assign", target, value)

    def _if(self) -> Any:
        condition = self._expression()
        self._expect("then")
        body = self._statements()
        if self._accept("elsif"):
            return ("if", condition, body, [self._if()])
        other = self._statements() if self._accept("else") else []
        self._expect("endif")
        return ("if", condition, body, other)

    def _expression(self) -> Any:
        if self._peek() == "lambda":
            return self._lambda()
        condition = self._binary(0)
        if self._accept("?"):
            first = self._expression()
            self._expect(":")
            return ("choose", condition, first, self._expression())
        return condition

    def _lambda(self) -> Any:
        self._next()
        self._expect("(")
        names = [self._next()]
        while self._accept(","):
            names.append(self._next())
        self._expect(")")
        self._expect("(")
        body = self._statements()
        self._expect(")")
        return ("lambda", names, body)

    def _binary(self, level: int) -> Any:
        if level == len(_LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        while self._peek() in _LEVELS[level]:
            operator = self._next()
            left = ("binary", operator, left, self._binary(level + 1))
        return left

    def _unary(self) -> Any:
        for operator in ("-", "+", "~", "!"):
            if self._accept(operator):
                return ("unary", operator, self._unary())
        return self._postfix()

    def _postfix(self) -> Any:
        node = self._primary()
        while True:
            if self._accept("."):
                node = ("view", node, self._next())
            elif self._accept("["):
                high = self._expression()
                low = self._expression() if self._accept(":") else None
                self._expect("]")
                node = ("index", node, high, low)
            else:
                return node

    def _primary(self) -> Any:
        token = self._next()
        if token == "(":
            node = self._expression()
            self._expect(")")
            return node
        if token == "{":
            parts = [self._expression()]
            while self._accept(","):
                parts.append(self._expression())
            self._expect("}")
            return ("concat", parts)
        if re.match(r"\d+'[A-Z]", token):
            self._expect("(")
            node = self._expression()
            self._expect(")")
            width, kind = token.split("'")
            return ("cast", kind.lower()[-1] if kind != "BF" else "bf", int(width), node)
        if token[0].isdigit():
            return ("number", _number(token))
        if self._peek() == "(":
            self._next()
            arguments = [] if self._peek() == ")" else [self._expression()]
            while self._accept(","):
                arguments.append(self._expression())
            self._expect(")")
            return ("call", token, arguments)
        return ("name", token)


def _number(token: str) -> Value:
    if "'" in token:
        width, digits = token.split("'")
        if "." in digits:
            return Value("f", int(width), float(digits))
        return Value("u", int(width), int(digits.rstrip("U"), 0))
    if "." in token or (token.endswith("F") and not token.startswith("0x")):
        return Value("f", 32 if token.endswith("F") else 64, float(token.rstrip("F")))
    digits = token.rstrip("UL")
    width = 64 if token.endswith(("L", "LL")) else 32
    value = int(digits, 0)
    return Value(
        "u" if "U" in token or token.startswith("0x") else "i", max(width, value.bit_length()), value
    )


# execution ----------------------------------------------------------------------------------------


def _execute(statements: list[Any], names: dict[str, Any]) -> None:
    for statement in statements:
        kind = statement[0]
        if kind == "declare":
            names[statement[1]] = Storage(cells={} if statement[2] else None)
        elif kind == "assign":
            _assign(statement[1], statement[2], names)
        elif kind == "if":
            _execute(statement[2] if truth(_value(statement[1], names)) else statement[3], names)
        elif kind == "for":
            first, last = (int(_value(statement[part], names).number) for part in (2, 3))
            try:
                for number in range(first, last + 1):
                    names[statement[1]] = Storage(number, "i", 32)
                    _execute(statement[4], names)
            except Broken:
                pass
        elif kind == "break":
            raise Broken
        else:
            raise Returned(_value(statement[1], names))


def _assign(target: Any, expression: Any, names: dict[str, Any]) -> None:
    if expression[0] == "lambda":
        names[target[1]] = expression
        return
    value = _value(expression, names)
    if target[0] == "concat":
        bits = to_bits(value, value.width)
        for part in reversed(target[1]):
            width = _width_of(part)
            _store(part, Value("b", width, bits & ((1 << width) - 1)), names)
            bits >>= width
        return
    _store(target, value, names)


def _width_of(target: Any) -> int:
    return int(re.sub(r"\D", "", target[2]))


def _store(target: Any, value: Value, names: dict[str, Any]) -> None:
    """Write a value to a variable, a view of one, or some of its bits."""
    if target[0] == "name":
        storage = names.setdefault(target[1], Storage())
        if target[1] in ("D0", "D1"):
            _put(storage, value, 0, value.width)
        else:
            storage.write(value)
        return
    kind, width, node = value.kind, value.width, target
    if node[0] == "view":
        kind, width = _kind_of(node[2])
        node = node[1]
    if _is_memory(node):
        width = width if target is not node else 32
        names["MEM"].write(_address(node, names), to_bits(convert(value, kind, width), width), width)
        return
    if node[0] == "index" and node[1][0] == "index" and node[1][1] == ("name", "VGPR"):
        lane = int(_value(node[1][2], names).number)
        names["VGPR"].write(lane, node[2], to_bits(value, value.width) & 0xFFFFFFFF)
        return
    if node[0] == "index":
        cell = _cell(node, names)
        if cell is not None:
            cell.write(convert(value, kind, width))
            return
        high = int(_value(node[2], names).number)
        low = high if node[3] is None else int(_value(node[3], names).number)
        storage = names.setdefault(_root(node), Storage())
        bits = to_bits(convert(value, kind, abs(high - low) + 1), abs(high - low) + 1)
        if high < low:
            high, low = low, high
            bits = int(f"{bits:0{high - low + 1}b}"[::-1], 2)
        _put_bits(storage, bits, low, high - low + 1)
        return
    storage = names.setdefault(_root(node), Storage(kind=kind, width=width))
    _put(storage, convert(value, kind, width), 0, width)
    if storage is not names.get("D0"):
        storage.kind, storage.width = kind, width


def _put(storage: Storage, value: Value, low: int, width: int) -> None:
    _put_bits(storage, to_bits(value, width), low, width)


def _put_bits(storage: Storage, bits: int, low: int, width: int) -> None:
    mask = ((1 << width) - 1) << low
    storage.bits = (storage.bits & ~mask) | ((bits << low) & mask)


def _root(node: Any) -> str:
    while node[0] != "name":
        node = node[1]
    return str(node[1])


def _cell(node: Any, names: dict[str, Any]) -> Storage | None:
    """The cell of an array, if the node is one."""
    if (
        node[1][0] == "name"
        and isinstance(storage := names.get(node[1][1]), Storage)
        and storage.cells is not None
    ):
        return storage.cells.setdefault(int(_value(node[2], names).number), Storage())
    return None


def _kind_of(name: str) -> tuple[str, int]:
    match = re.match(r"(bf|fp|[a-z])(\d+)$", name)
    if match is None:
        raise ValueError(f"type {name} is not understood")
    kind = {"fp": "b", "bf": "bf"}.get(match[1], match[1])
    return ("b" if name in ("fp8", "bf8") else kind), int(match[2])


def _value(node: Any, names: dict[str, Any]) -> Value:
    kind = node[0]
    if kind == "number":
        return node[1]
    if kind == "name":
        found = names[node[1]]
        return found if isinstance(found, Value) else found.read()
    if kind == "unary":
        return operate(node[1], None, _value(node[2], names))
    if kind == "binary":
        if node[1] in ("&&", "||"):
            left = truth(_value(node[2], names))
            short = left if node[1] == "||" else not left
            return Value("u", 1, int(left if short else truth(_value(node[3], names))))
        return operate(node[1], _value(node[2], names), _value(node[3], names))
    if kind == "choose":
        return _value(node[2] if truth(_value(node[1], names)) else node[3], names)
    if kind == "cast":
        return convert(_value(node[3], names), node[1], node[2])
    if kind == "concat":
        bits = width = 0
        for part in node[1]:
            value = _value(part, names)
            bits, width = bits << value.width | to_bits(value, value.width), width + value.width
        return Value("u", width, bits)
    if kind == "view":
        return _view(node, names)
    if kind == "index":
        return _index(node, names)
    return _call(node, names)


def _is_memory(node: Any) -> bool:
    return bool(node[0] == "index" and node[1] == ("name", "MEM"))


def _address(node: Any, names: dict[str, Any]) -> int:
    return int(_value(node[2], names).number)


def _view(node: Any, names: dict[str, Any]) -> Value:
    kind, width = _kind_of(node[2])
    if _is_memory(node[1]):
        return from_bits(names["MEM"].read(_address(node[1], names), width), kind, width)
    if node[1][0] == "name" and isinstance(names.get(node[1][1]), Storage):
        return from_bits(names[node[1][1]].bits & ((1 << width) - 1), kind, width)
    inner = _value(node[1], names)
    if node[1] in (("name", "INF"), ("name", "NAN")):
        return Value("f", width, inner.number)
    return from_bits(to_bits(inner, inner.width) & ((1 << width) - 1), kind, width)


def _index(node: Any, names: dict[str, Any]) -> Value:
    if _is_memory(node):
        return Value("b", 32, names["MEM"].read(_address(node, names), 32))
    if node[1][0] == "index" and node[1][1] == ("name", "VGPR"):
        lane = int(_value(node[1][2], names).number)
        return Value("u", 32, names["VGPR"](lane, node[2]))
    cell = _cell(node, names)
    if cell is not None:
        return cell.read()
    root = node[1]
    if root[0] == "name" and isinstance(names[root[1]], Storage):
        bits = names[root[1]].bits
    else:
        inner = _value(root, names)
        bits = to_bits(inner, inner.width)
    high = int(_value(node[2], names).number)
    low = high if node[3] is None else int(_value(node[3], names).number)
    if high < low:
        width = low - high + 1
        part = (bits >> high) & ((1 << width) - 1)
        return Value("u", width, int(f"{part:0{width}b}"[::-1], 2))
    return Value("u", high - low + 1, (bits >> low) & ((1 << (high - low + 1)) - 1))


def _call(node: Any, names: dict[str, Any]) -> Value:
    arguments = [_value(argument, names) for argument in node[2]]
    closure = names.get(node[1])
    if isinstance(closure, tuple):
        inner = dict(names)
        for name, argument in zip(closure[1], arguments, strict=True):
            inner[name] = Storage(to_bits(argument, argument.width), argument.kind, argument.width)
        try:
            _execute(closure[2], inner)
        except Returned as returned:
            result: Value = returned.args[0]
            return result
    if callable(closure):
        own: Value = closure(*arguments)
        return own
    if node[1] not in FUNCTIONS:
        raise ValueError(f"pseudocode function {node[1]} is not known")
    return FUNCTIONS[node[1]](*arguments)
