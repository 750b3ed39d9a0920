--------------------------- MODULE LaneStoreGraph ---------------------------
(* All states of one delivery, of the owner of its lane, and of what two processes took, under any sequence of operations, *)
(* also outdated ones. `offers` has every operation with its reply and the next state: the conformance test runs all of    *)
(* them on the real stores.                                                                                                *)
EXTENDS LaneStore, Sequences

CONSTANT MaxAttempts \* Bounds the number of attempts, and of replays.

VARIABLES state, offers

\* owner: 0 is nobody. taken: the numbers of the attempt and of the replay.
NotTaken == [attempt |-> Never, replay |-> Never]
Start == [delivery |-> NoDelivery, owner |-> 0, taken |-> <<NotTaken, NotTaken>>]

Offer(name, process, kind, reply, next) ==
  [operation |-> name, process |-> process, kind |-> kind, reply |-> reply, next |-> next]
Exists(s) == s.delivery.state # "absent"

OfAppend(s) ==
  <<Offer("append", 0, "", IF Exists(s) THEN "duplicate" ELSE "stored", IF Exists(s) THEN s ELSE [s EXCEPT !.delivery = Appended])>>
\* A lane exists once it has a delivery.
OfOwner(s, p) == IF Exists(s) THEN <<Offer("own", p, "", TRUE, [s EXCEPT !.owner = p])>> ELSE <<>>
OfRepair(s, name, next, isChanged) == <<Offer(name, 0, "", IF isChanged THEN 1 ELSE 0, [s EXCEPT !.delivery = next])>>
OfTake(s, p) ==
  LET isFound == s.delivery.state = "waiting" /\ s.delivery.due = 0 /\ s.taken[p] = NotTaken IN
  <<Offer("take", p, "", isFound, IF isFound THEN [s EXCEPT !.taken[p] = [attempt |-> s.delivery.attempt, replay |-> s.delivery.replay]] ELSE s)>>
\* The reply: whether another process has the lane.
OfSettle(s, p, kind) ==
  IF s.taken[p] = NotTaken \/ (s.delivery.attempt = MaxAttempts /\ Made(kind) = 1) THEN <<>>
  ELSE <<Offer("settle", p, kind, s.owner # p,
    [s EXCEPT !.delivery = Settled(@, s.owner = p, s.taken[p], kind), !.taken[p] = NotTaken])>>
\* Without one that waits and is in flight: after it, a failed attempt keeps its due time, which depends on milliseconds.
OfRetry(s) ==
  IF IF s.delivery.state = "waiting" THEN s.taken # <<NotTaken, NotTaken>> ELSE s.delivery.replay = MaxAttempts
  THEN <<>> ELSE OfRepair(s, "retry", Retried(s.delivery), Exists(s))
OfProcess(s, p) ==
  OfOwner(s, p) \o OfTake(s, p) \o OfSettle(s, p, "delivered") \o OfSettle(s, p, "dead") \o OfSettle(s, p, "skipped")
  \o OfSettle(s, p, "retry") \o OfSettle(s, p, "postponed")

Offers(s) ==
  OfAppend(s) \o OfOwner(s, 0) \o OfProcess(s, 1) \o OfProcess(s, 2)
  \o OfRetry(s)
  \o OfRepair(s, "cancel", Canceled(s.delivery), s.delivery.state = "waiting")
  \o <<Offer("tick", 0, "", TRUE, [s EXCEPT !.delivery.due = Later(@)])>>

Init == state = Start /\ offers = Offers(Start)
Next == \E i \in DOMAIN offers : state' = offers[i].next /\ offers' = Offers(offers[i].next)
Spec == Init /\ [][Next]_<<state, offers>>
=============================================================================
