#!/usr/bin/env python3
"""Finds the structs that may grow, and checks that they changed in no other way: a part of scripts/abi-check.

A struct whose first member is fxi_size, the size that a program knows, may get members at its end. abidiff can
ignore that, but then also ignores every other change of these structs. So this script writes abidiff's suppressions
and checks itself that the new struct has all the old members, at the same offsets and of the same types.
Usage: abi_growth.py OLD.abi NEW.abi SUPPRESSIONS
"""
import sys
import xml.etree.ElementTree as ElementTree

SUPPRESSION = "[suppress_type]\n  name = {}\n  has_data_member_inserted_at = end\n"


class Description:
    def __init__(self, path):
        root = ElementTree.parse(path).getroot()
        self.types = {t.get("id"): t for t in root.iter() if t.get("id")}
        self.growing = {}  # name: {member: (offset, type)}
        for struct in root.iter("class-decl"):
            members = [(m.get("layout-offset-in-bits"), m.find("var-decl")) for m in struct.findall("data-member")]
            if members and members[0][1].get("name") == "fxi_size":
                self.growing[struct.get("name")] = {v.get("name"): (offset, self.spell(v.get("type-id")))
                                                    for offset, v in members}

    def spell(self, identity):
        """A type as text, the same in every description. A named type is represented by its name, because abidiff compares its contents."""
        t = self.types.get(identity)
        if t is None:
            return identity
        if t.tag == "pointer-type-def":
            return self.spell(t.get("type-id")) + " *"
        if t.tag == "qualified-type-def":
            return "const " * (t.get("const") == "yes") + self.spell(t.get("type-id"))
        if t.tag == "array-type-def":
            return self.spell(t.get("type-id")) + "".join(f"[{r.get('length')}]" for r in t.findall("subrange"))
        if t.tag == "function-type":
            return f"{self.spell(t.find('return').get('type-id'))}({', '.join(map(self.parameter, t.findall('parameter')))})"
        return t.get("name")

    def parameter(self, p):
        return "..." if p.get("is-variadic") == "yes" else self.spell(p.get("type-id"))


def main():
    old, new = Description(sys.argv[1]), Description(sys.argv[2])
    errors = []
    for struct, members in sorted(old.growing.items()):
        now = new.growing.get(struct, {})
        errors += [f"{struct}.{name}: was {was[1]} at bit {was[0]}, is {now[name][1] + ' at bit ' + now[name][0] if name in now else 'not there'}"
                   for name, was in members.items() if now.get(name) != was]
    with open(sys.argv[3], "w", encoding="utf-8") as f:
        f.writelines(SUPPRESSION.format(struct) for struct in sorted(old.growing))
    for e in errors:
        print(e)
    return 4 if errors else 0  # abidiff's status for a change of the interface


if __name__ == "__main__":
    sys.exit(main())
