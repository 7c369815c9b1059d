"""Speaks with a labgrid coordinator for rtscope: one request, one JSON document on standard output.

ask_labgrid.py COORDINATOR list | acquire PLACE | address PLACE | release PLACE
"""

import argparse
import contextlib
import json
import sys

# labgrid's own messages are for people.
with contextlib.redirect_stdout(sys.stderr):
    from labgrid.remote.client import Error, start_session


def address_of(session, place):
    """Where ssh goes: the place's NetworkService, if its exporter is still there."""
    for (_, kind), resource in session.get_target_resources(place).items():
        if kind == "NetworkService":
            if not resource.avail:
                break
            params = resource.params
            return {"address": params["address"], "user": params.get("username"), "port": params.get("port", 22)}
    return {"problem": "it has no NetworkService that is available: is its exporter running?"}


def answer(session, verb, name):
    if verb == "list":
        return [
            {"name": place.name, "tags": dict(place.tags), "taken_by": place.acquired}
            for place in session.places.values()
        ]
    if name not in session.places:
        return {"problem": "the coordinator has no such place any more"}
    place = session.places[name]
    us = f"{session.gethostname()}/{session.getuser()}"
    if verb == "acquire":
        if place.acquired:
            return {"taken_by": place.acquired}
        session.loop.run_until_complete(session._acquire_place(name))
        found = address_of(session, session.places[name])
        if "problem" in found:
            session.loop.run_until_complete(session._release_place(name))
        return found
    if place.acquired != us:
        return {"taken_by": place.acquired} if place.acquired else {"free": True}
    if verb == "address":
        return address_of(session, place)
    session.loop.run_until_complete(session._release_place(name))
    return {"free": True}


def main():
    coordinator, verb, *rest = sys.argv[1:]
    name = rest[0] if rest else None
    with contextlib.redirect_stdout(sys.stderr):
        args = argparse.Namespace(place=name, allow_unmatched=False, kick=False)
        try:
            session = start_session(coordinator, extra={"args": args})
            found = answer(session, verb, name)
            session.loop.run_until_complete(session.stop())
        except Error as error:
            found = {"problem": str(error)}
    print(json.dumps(found))


main()
