"""Read the operator that replaces a region: `ConvBN`, or one in the author's domain with attributes.

`com.mylib.ConvBN(strides=Conv.strides, epsilon=BatchNormalization.epsilon)` gives the operator's attributes: taken from nodes in
the region, by operator, or literal numbers, texts and lists.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Container

from onnx_subgraph import operators
from onnx_subgraph.errors import PatternError, Span
from onnx_subgraph.language import spelling
from onnx_subgraph.language.grammar import Code, parse_expression
from onnx_subgraph.language.pattern import Grow, OfNode, Pattern
from onnx_subgraph.language.source import Data, Fields
from onnx_subgraph.language.term import Operator, Static
from onnx_subgraph.operators.names import ENGINE, KERNELS, OWN_DOMAIN

_NAME = re.compile(r"[A-Z][A-Za-z0-9]*")
_USAGE = "write `replace: {function: Elementwise}`; a region has no other replacement"
_CALL = "write `function: com.mylib.ConvBN(strides=Conv.strides)`, on a line of its own"


def read_operator(data: Data | None, otherwise: str) -> Grow:
    """Read a region's operator under `replace`; `otherwise` is its name where there is none. Raises PatternError."""
    if data is None:
        return Grow(otherwise)
    if not isinstance(data, Fields):
        raise PatternError("`replace` names no function", span=data.span, hint=_USAGE)
    for key, _ in data.entries:
        if key.text != "function":
            raise PatternError(f"a region can't be replaced for the target `{key.text}`", span=key.span, hint=_USAGE)
    named = data.get("function")
    if named is None:
        return Grow(otherwise)
    code, tree = parse_expression(named, "function")
    called = tree.func if isinstance(tree, ast.Call) else tree
    operator = _operator(called, code)
    if not isinstance(tree, ast.Call):
        return Grow(operator.name, operator.domain or OWN_DOMAIN)
    if not operator.domain:
        hint = f"leave `(…)` out, or write it with its domain, `com.mylib.{operator.name}(…)`"
        raise PatternError("a function of ours takes no attributes", span=code.span(tree), hint=hint)
    if tree.args:
        message = "a region passes all its inputs; only attributes are named"
        raise PatternError(message, span=code.span(tree.args[0]), hint=_CALL)
    attributes = {_attribute_name(keyword, code): _attribute(keyword.value, code) for keyword in tree.keywords}
    return Grow(operator.name, operator.domain, attributes)


def check_attributes(grow: Grow) -> None:
    """Raise PatternError where an attribute is taken from an unknown operator, or from one that never has it."""
    for source in grow.attributes.values():
        if not isinstance(source, OfNode) or not operators.is_domain(source.operator.domain):
            continue
        schemas = operators.history(source.operator.name, source.operator.domain)
        known = {name for schema in schemas for name in schema.attributes}
        if not schemas:
            near = spelling.hint(source.operator.name, operators.operator_names(source.operator.domain))
            raise PatternError(f"`{source.operator}` is not an operator", span=source.span, hint=near)
        if source.attribute not in known:
            hint = spelling.hint(source.attribute, known, f"it has {', '.join(sorted(known)) or 'none'}")
            raise PatternError(f"`{source.operator}` has no attribute `{source.attribute}`", span=source.span, hint=hint)


def _operator(tree: ast.expr, code: Code) -> Operator:
    """`Name` or `its.domain.Name`."""
    domain, _, name = ast.unparse(tree).rpartition(".")
    if not isinstance(tree, ast.Name | ast.Attribute) or _NAME.fullmatch(name) is None:
        hint = "an operator's name is in CamelCase, `Elementwise`, with its domain if it is your own"
        raise PatternError("not the name of an operator", span=code.span(tree), hint=hint)
    if domain and operators.is_domain(domain):
        message = f"`{domain}` is a domain of others: a region can't be one of their operators"
        raise PatternError(message, span=code.span(tree), hint="write a domain of your own, `com.mylib`")
    return Operator(name, domain)


def _attribute_name(keyword: ast.keyword, code: Code) -> str:
    if keyword.arg is None:
        raise PatternError("attributes are named one by one", span=code.span(keyword), hint=_CALL)
    return keyword.arg


def _attribute(tree: ast.expr, code: Code) -> OfNode | Static:
    if isinstance(tree, ast.Attribute):
        domain, _, name = ast.unparse(tree.value).rpartition(".")
        if _NAME.fullmatch(name) is not None:
            return OfNode(Operator(name, domain), tree.attr, code.span(tree))
    try:
        value = ast.literal_eval(tree)
    except ValueError:
        value = None
    items = value if isinstance(value, list | tuple) else (value,)
    if not items or not all(isinstance(item, int | float | str) for item in items):
        hint = "name an attribute of an operator in the region, `Conv.strides`, or write a number, a text or a list"
        raise PatternError("not an attribute", span=code.span(tree), hint=hint)
    return tuple(items) if isinstance(value, list | tuple) else value


def check_name(pattern: Pattern, span: Span | None, ours: Container[str]) -> None:
    """Raise PatternError where the operator of a user's pattern has the name of a built-in one, which a runtime may run instead.

    span: of its id. ours: the names of canonical operators.
    """
    is_own = pattern.raised is None and not pattern.bodies and (pattern.grow is None or pattern.grow.domain == OWN_DOMAIN)
    if is_own and (pattern.name in ours or pattern.name in KERNELS or pattern.name == ENGINE):
        message = f"the pattern's operator `{OWN_DOMAIN}.{pattern.name}` has the name of a built-in one"
        hint = "rename the pattern, file and id" if pattern.grow is None else "name another operator in `replace`, or rename it"
        raise PatternError(message, span=span, hint=hint)
