-------------------------- MODULE LaneStoreGraph ---------------------------
(* All states of a lane with one delivery and two runs under any sequence of operations, also outdated ones. `offers` has    *)
(* every operation with its reply and the next state: the conformance test runs all of them against Redis.                   *)
EXTENDS LaneStore, Sequences

VARIABLES state, offers

Event == CHOOSE e \in Events : TRUE
Start == [store |-> EmptyStore, taken |-> <<NoDelivery, NoDelivery>>]

Offer(name, token, kind, time, reply, next) ==
  [operation |-> name, token |-> token, kind |-> kind, time |-> time, reply |-> reply, next |-> next]
Has(s, t) == s.taken[t].state # "absent"
Delivery(s) == s.store.deliveries[Event]

OfAppend(s) == LET done == Append(s.store, Event) IN
  <<Offer("append", 0, "", 0, <<done.result, done.wake>>, [s EXCEPT !.store = done.next])>>
OfReplay(s) == LET done == Replay(s.store, Event) IN
  <<Offer("replay", 0, "", 0, <<done.changed, done.wake>>, [s EXCEPT !.store = done.next])>>
OfBegin(s, t) == LET done == Begin(s.store, t) IN
  <<Offer("begin", t, "", 0, <<done.hasWork, done.at>>,
    [store |-> done.next, taken |-> [s.taken EXCEPT ![t] = IF done.hasWork THEN done.next.deliveries[Event] ELSE NoDelivery]])>>
OfTake(s, t) == LET done == Take(s.store, t, IF Has(s, t) THEN {Event} ELSE {}) IN
  <<Offer("take", t, "", 0, <<done.isHeld, done.taken # {}>>,
    IF done.taken = {} THEN s ELSE [s EXCEPT !.taken[t] = Delivery(s)])>>
OfSettle(s, t, kind, due) == LET done == Settle(s.store, t, Event, s.taken[t], kind, due) IN
  \* Bounds the number of attempts.
  IF ~Has(s, t) \/ s.taken[t].attempt = MaxAttempts THEN <<>>
  ELSE <<Offer("settle", t, kind, due, <<done.isHeld, done.isEmpty>>, [store |-> done.next, taken |-> [s.taken EXCEPT ![t] = NoDelivery]])>>
OfFinish(s, t, nb) == LET done == Finish(s.store, t, nb) IN
  <<Offer("finish", t, "", nb, <<done.isHeld, done.at, done.isScheduled>>, [s EXCEPT !.store = done.next])>>
OfRun(s, t) ==
  OfBegin(s, t) \o OfTake(s, t) \o OfFinish(s, t, Never) \o OfFinish(s, t, MaxTime)
  \o OfSettle(s, t, "delivered", Never) \o OfSettle(s, t, "dead", Never) \o OfSettle(s, t, "skipped", Never)
  \o OfSettle(s, t, "retry", 1) \o OfSettle(s, t, "postponed", 0)

Offers(s) ==
  OfAppend(s) \o OfReplay(s) \o OfRun(s, 1) \o OfRun(s, 2) \o <<
    Offer("wake", 0, "", 0, <<>>, [s EXCEPT !.store = Wake(s.store)]),
    Offer("tick", 0, "", 0, <<>>,
      [store |-> Tick(s.store), taken |-> [t \in 1..2 |-> [s.taken[t] EXCEPT !.due = Later(@)]]])>>

Init == state = Start /\ offers = Offers(Start)
Next == \E i \in DOMAIN offers : state' = offers[i].next /\ offers' = Offers(offers[i].next)
Spec == Init /\ [][Next]_<<state, offers>>
=============================================================================
