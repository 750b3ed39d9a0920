-------------------------- MODULE ClaimStoreGraph --------------------------
(* All states of one entry under any sequence of operations. `offers` has every operation with its reply and the next state: *)
(* the conformance test runs all of them against the real stores.                                                            *)
EXTENDS ClaimStore, Sequences

\* copy: what a failover restores.
VARIABLES state, offers

Start == [entry |-> Absent, copy |-> Absent]

Offer(name, token, reply, next) == [operation |-> name, token |-> token, reply |-> reply, next |-> next]
Of(name, token, s, done) == Offer(name, token, done.result, [s EXCEPT !.entry = done.entry])

OfToken(s, t) == <<
  Of("claim", t, s, Claim(s.entry, t)),
  Of("confirm", t, s, Confirm(s.entry, t)),
  Of("release", t, s, Release(s.entry, t))>>

Offers(s) == OfToken(s, 1) \o OfToken(s, 2) \o <<
  Of("forget", 0, s, Forget(s.entry)),
  Offer("expire", 0, "none", [s EXCEPT !.entry = Absent]),
  Offer("copy", 0, "none", [s EXCEPT !.copy = s.entry]),
  Offer("restore", 0, "none", [s EXCEPT !.entry = s.copy])>>

Init == state = Start /\ offers = Offers(Start)
Next == \E i \in DOMAIN offers : state' = offers[i].next /\ offers' = Offers(offers[i].next)
Spec == Init /\ [][Next]_<<state, offers>>
=============================================================================
