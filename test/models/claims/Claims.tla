------------------------------ MODULE Claims ------------------------------
(* The claim protocol of deduplication: gates that share a store, a sender that retries, and an app.          *)
(* A delivery is one request of the sender at one gate; it is used again for the next request. Any process can *)
(* be arbitrarily slow: each step is separate, and another process can take any number of steps in between.    *)
EXTENDS ClaimStore, FiniteSets, TLC

CONSTANTS
  Gates, Events,
  Copies,          \* Requests at once for each event at each gate.
  MaxFaults,       \* Faults in one behaviour.
  Faults,          \* The kinds of fault that can happen.
  Options,         \* Of the config: "onStoreError: forward", "resend: always".
  Listed,          \* The causes of a double that the documentation names.
  ListedOverlaps   \* The causes of two requests at once to the app that it names.

VARIABLES
  store,     \* For each event, its entry.
  replica,   \* What a failover keeps of the store.
  delivery,  \* The state of each request.
  handled,   \* How often the app handled each event: 0, 1, or 2 for "more than once".
  acked,     \* The sender got a 2xx for the event.
  causes,    \* For each event, the faults that can lead to a double.
  faults,    \* Faults so far.
  isForeign  \* A settlement changed a claim of another delivery, or a handled ID.

vars == <<store, replica, delivery, handled, acked, causes, faults, isForeign>>

Deliveries == Gates \X Events \X (1..Copies)
GateOf(d) == d[1]
EventOf(d) == d[2]
Of(e) == {d \in Deliveries : EventOf(d) = e}
\* One for each delivery, one in the store, one in the replica, and one that is free.
Tokens == 1..(Cardinality(Gates) * Copies + 3)

Idle == [pc |-> "idle", token |-> 0, settle |-> "none", isStuck |-> FALSE]
Min(set) == CHOOSE x \in set : \A y \in set : x <= y
\* Each attempt has its own token.
FreshToken(e) == Min(Tokens \ ({store[e].token, replica[e].token} \cup {delivery[d].token : d \in Of(e)}))
Count(n) == IF n < 2 THEN n + 1 ELSE 2

Init ==
  /\ store = [e \in Events |-> Absent]
  /\ replica = [e \in Events |-> Absent]
  /\ delivery = [d \in Deliveries |-> Idle]
  /\ handled = [e \in Events |-> 0]
  /\ acked = [e \in Events |-> FALSE]
  /\ causes = [e \in Events |-> {}]
  /\ faults = 0
  /\ isForeign = FALSE

CanFail(kind) == kind \in Faults /\ faults < MaxFaults
Fail(kind) == CanFail(kind) /\ faults' = faults + 1
AddCause(e, cause) == causes' = [causes EXCEPT ![e] = @ \cup {cause}]
Become(d, state) == delivery' = [delivery EXCEPT ![d] = state]
MoveTo(d, pc) == Become(d, [delivery[d] EXCEPT !.pc = pc])
Settling(d, kind) == [delivery[d] EXCEPT !.pc = "settling", !.settle = kind]

\* The 2xx reaches the sender, or is lost.
Acknowledge(e) ==
  \/ acked' = [acked EXCEPT ![e] = TRUE] /\ UNCHANGED faults
  \/ Fail("lost response") /\ UNCHANGED acked

---------------------------------------------------------------------------
(* The sender: it can send an event again at any time, even after a 2xx, and several times at once. *)

Send(d) ==
  /\ delivery[d].pc = "idle"
  /\ Become(d, [Idle EXCEPT !.pc = "asking", !.token = FreshToken(EventOf(d))])
  /\ UNCHANGED <<store, replica, handled, acked, causes, faults, isForeign>>

---------------------------------------------------------------------------
(* The gate. *)

\* A request that waits for another one (dedup.inProgress: wait) is the same as one that is rejected and sent again.
Ask(d) ==
  LET e == EventOf(d)
      reply == Claim(store[e], delivery[d].token)
      isConfirmedEarly == Mutation = "confirm before the app's response"
  IN
  /\ delivery[d].pc = "asking"
  /\ store' = [store EXCEPT ![e] = IF reply.result = "new" /\ isConfirmedEarly THEN Handled ELSE reply.entry]
  /\ CASE reply.result = "new" -> MoveTo(d, "claimed") /\ UNCHANGED <<acked, faults>>
       [] reply.result = "handled" -> Become(d, Idle) /\ Acknowledge(e)
       [] OTHER -> Become(d, Idle) /\ UNCHANGED <<acked, faults>>
  /\ UNCHANGED <<replica, handled, causes, isForeign>>

\* The store does not respond. It can have executed the claim.
AskFails(d) ==
  LET e == EventOf(d) IN
  /\ delivery[d].pc = "asking"
  /\ Fail("outage")
  /\ \/ store' = [store EXCEPT ![e] = Claim(@, delivery[d].token).entry]
     \/ UNCHANGED store
  /\ IF "onStoreError: forward" \in Options
     THEN MoveTo(d, "claimed") /\ AddCause(e, "forward")
     ELSE Become(d, Settling(d, "release")) /\ UNCHANGED causes
  /\ UNCHANGED <<replica, handled, acked, isForeign>>

Forward(d) ==
  /\ delivery[d].pc = "claimed"
  /\ MoveTo(d, "sent")
  /\ UNCHANGED <<store, replica, handled, acked, causes, faults, isForeign>>

\* No byte reaches the app: it is unreachable, or a later check rejects the request.
NotSent(d) ==
  /\ delivery[d].pc = "claimed"
  /\ Fail("not sent")
  /\ Become(d, Settling(d, "release"))
  /\ UNCHANGED <<store, replica, handled, acked, causes, isForeign>>

\* The gate does not wait for the confirmation before it responds.
AppHandles(d) ==
  LET e == EventOf(d) IN
  /\ delivery[d].pc = "sent"
  /\ handled' = [handled EXCEPT ![e] = Count(@)]
  /\ Become(d, Settling(d, "confirm"))
  /\ Acknowledge(e)
  /\ UNCHANGED <<store, replica, causes, isForeign>>

\* A connection that was kept alive is closed before the response, and the gate sends the request once more. The app may have handled it.
Resend(d) ==
  LET e == EventOf(d) IN
  /\ delivery[d].pc = "sent"
  /\ "resend: always" \in Options /\ Fail("closed connection")
  /\ AddCause(e, "resend")
  /\ handled' = [handled EXCEPT ![e] = Count(@)]
  /\ UNCHANGED <<store, replica, delivery, acked, isForeign>>

AppRejects(d) ==
  /\ delivery[d].pc = "sent"
  /\ Fail("rejection")
  /\ Become(d, Settling(d, "release"))
  /\ UNCHANGED <<store, replica, handled, acked, causes, isForeign>>

\* The app responds with an error although it handled the event.
AppErrs(d) ==
  LET e == EventOf(d) IN
  /\ delivery[d].pc = "sent"
  /\ Fail("app error")
  /\ handled' = [handled EXCEPT ![e] = Count(@)]
  /\ AddCause(e, "app error")
  /\ Become(d, Settling(d, "release"))
  /\ UNCHANGED <<store, replica, acked, isForeign>>

\* A timeout, or a lost connection: the claim is held. The app may still be working.
GiveUp(d) ==
  LET e == EventOf(d) IN
  /\ delivery[d].pc = "sent"
  /\ Fail("no response")
  /\ AddCause(e, "no response")
  /\ MoveTo(d, "abandoned")
  /\ store' = IF Mutation = "held claim is released" THEN [store EXCEPT ![e] = Release(@, delivery[d].token).entry] ELSE store
  /\ UNCHANGED <<replica, handled, acked, isForeign>>

\* The app ends the work on a request that no gate waits for.
AppEnds(d) ==
  LET e == EventOf(d) IN
  /\ delivery[d].pc = "abandoned"
  /\ Become(d, Idle)
  /\ \/ handled' = [handled EXCEPT ![e] = Count(@)]
     \/ UNCHANGED handled
  /\ UNCHANGED <<store, replica, acked, causes, faults, isForeign>>

Settled(d) ==
  LET entry == store[EventOf(d)] IN
  IF delivery[d].settle = "confirm" THEN Confirm(entry, delivery[d].token).entry ELSE Release(entry, delivery[d].token).entry

WriteSettlement(d) ==
  LET e == EventOf(d)
      isOther == store[e].kind = "handled" \/ (store[e].kind = "claimed" /\ store[e].token # delivery[d].token)
  IN
  /\ store' = [store EXCEPT ![e] = Settled(d)]
  /\ isForeign' = (isForeign \/ (isOther /\ Settled(d) # store[e]))

Settle(d) ==
  /\ delivery[d].pc = "settling"
  /\ WriteSettlement(d)
  /\ Become(d, Idle)
  /\ UNCHANGED <<replica, handled, acked, causes, faults>>

\* The store does not respond, and the gate tries again. It can have executed the settlement.
SettleFails(d) ==
  /\ delivery[d].pc = "settling"
  /\ Fail("outage")
  /\ \/ WriteSettlement(d)
     \/ UNCHANGED <<store, isForeign>>
  /\ Become(d, [delivery[d] EXCEPT !.isStuck = TRUE])
  /\ UNCHANGED <<replica, handled, acked, causes>>

\* The app may still be working on what the gate sent.
AfterCrash(state) == IF state.pc \in {"sent", "abandoned"} THEN [state EXCEPT !.pc = "abandoned"] ELSE Idle
IsOpen(state) == state.pc = "sent" \/ (state.pc = "settling" /\ state.settle = "confirm")

Crash(g) ==
  /\ \E d \in Deliveries : GateOf(d) = g /\ delivery[d].pc \notin {"idle", "abandoned"}
  /\ Fail("crash")
  /\ delivery' = [d \in Deliveries |-> IF GateOf(d) = g THEN AfterCrash(delivery[d]) ELSE delivery[d]]
  /\ causes' = [e \in Events |->
       IF \E d \in Of(e) : GateOf(d) = g /\ IsOpen(delivery[d]) THEN causes[e] \cup {"crash"} ELSE causes[e]]
  /\ UNCHANGED <<store, replica, handled, acked, isForeign>>

---------------------------------------------------------------------------
(* The store. *)

Expire(e) ==
  /\ store' = [store EXCEPT ![e] = Absent]
  /\ replica' = IF replica[e] = store[e] THEN [replica EXCEPT ![e] = Absent] ELSE replica

(* The lease is longer than the time that a gate waits for the head of the response (the config is checked for it, and   *)
(* the gate sends nothing if less of the lease is left). The head settles the claim. So the lease of a running gate ends *)
(* only if the gate is paused, or cannot reach the store, or has given up.                                               *)
LeaseEnds(e) ==
  LET holders == {d \in Of(e) : delivery[d].token = store[e].token /\ delivery[d].pc # "idle"}
      Is(d, pcs) == delivery[d].pc \in pcs
  IN
  /\ store[e].kind = "claimed"
  /\ Expire(e)
  /\ CASE \E d \in holders : Is(d, {"abandoned"}) -> Fail("overrun") /\ AddCause(e, "overrun")
       [] \E d \in holders : delivery[d].isStuck /\ delivery[d].settle = "confirm" -> AddCause(e, "outage") /\ UNCHANGED faults
       [] \E d \in holders : Is(d, {"claimed", "sent", "settling"}) /\ ~delivery[d].isStuck ->
            IF Mutation = "lease is too short" THEN UNCHANGED <<causes, faults>> ELSE Fail("pause") /\ AddCause(e, "pause")
       [] OTHER -> UNCHANGED <<causes, faults>>
  /\ UNCHANGED <<delivery, handled, acked, isForeign>>

RetentionEnds(e) ==
  /\ store[e] = Handled
  /\ Fail("retention")
  /\ Expire(e)
  /\ AddCause(e, "retention")
  /\ UNCHANGED <<delivery, handled, acked, isForeign>>

\* sidegate forget
OperatorForgets(e) ==
  /\ store[e] # Absent
  /\ Fail("forget")
  /\ store' = [store EXCEPT ![e] = Forget(@).entry]
  /\ AddCause(e, "forget")
  /\ UNCHANGED <<replica, delivery, handled, acked, isForeign>>

Replicate(e) ==
  /\ CanFail("data loss") /\ replica[e] # store[e]
  /\ replica' = [replica EXCEPT ![e] = store[e]]
  /\ UNCHANGED <<store, delivery, handled, acked, causes, faults, isForeign>>

\* The store loses what it had not replicated: failover, restart from an older file or empty, eviction.
DataLoss ==
  /\ store # replica
  /\ Fail("data loss")
  /\ store' = replica
  /\ causes' = [e \in Events |-> IF store[e] # replica[e] THEN causes[e] \cup {"data loss"} ELSE causes[e]]
  /\ UNCHANGED <<replica, delivery, handled, acked, isForeign>>

---------------------------------------------------------------------------

Next ==
  \/ \E d \in Deliveries :
       \/ Send(d) \/ Ask(d) \/ AskFails(d) \/ Forward(d) \/ NotSent(d) \/ AppHandles(d) \/ AppRejects(d) \/ AppErrs(d) \/ Resend(d)
       \/ GiveUp(d) \/ AppEnds(d) \/ Settle(d) \/ SettleFails(d)
  \/ \E g \in Gates : Crash(g)
  \/ \E e \in Events : LeaseEnds(e) \/ RetentionEnds(e) \/ OperatorForgets(e) \/ Replicate(e)
  \/ DataLoss

\* The sender retries until it gets a 2xx, processes that run take their next step, and the lease of a claim ends that no running gate holds.
Fairness ==
  /\ \A e \in Events : WF_vars(~acked[e] /\ \E d \in Of(e) : Send(d))
  /\ \A d \in Deliveries : WF_vars(Ask(d)) /\ WF_vars(Forward(d)) /\ WF_vars(AppHandles(d)) /\ WF_vars(AppEnds(d)) /\ WF_vars(Settle(d))
  /\ \A e \in Events : WF_vars(LeaseEnds(e))

Spec == Init /\ [][Next]_vars /\ Fairness

---------------------------------------------------------------------------
(* What the documentation promises. *)

\* No event is lost: the sender gets a 2xx only for an event that the app handled.
AcknowledgedIsHandled == \A e \in Events : acked[e] => handled[e] > 0

\* An ID is recorded as handled only if the app handled the event.
RecordedIsHandled == \A e \in Events : Handled \in {store[e], replica[e]} => handled[e] > 0

\* A settlement changes only the claim of its own delivery.
SettledByHolder == ~isForeign

\* The app handles an event more than once only for one of the listed causes.
IsDouble(e) == handled[e] > 1
DoubleHasCause == \A e \in Events : IsDouble(e) => causes[e] \cap Listed # {}

\* The app works on an event twice at once only for one of these causes.
IsOverlap(e) == Cardinality({d \in Of(e) : delivery[d].pc \in {"sent", "abandoned"}}) > 1
OverlapHasCause == \A e \in Events : IsOverlap(e) => causes[e] \cap ListedOverlaps # {}

\* An event that the sender retries is finally handled, and acknowledged.
RetriedIsHandled == \A e \in Events : <>(handled[e] > 0 /\ acked[e])

\* Always true; prints the causes of each double and each overlap, so that a control can find that each listed cause occurs.
ReportCauses == \A e \in Events :
  /\ IsDouble(e) => PrintT(<<"double", causes[e]>>)
  /\ IsOverlap(e) => PrintT(<<"overlap", causes[e]>>)

\* Gates and events are interchangeable.
Symmetry == Permutations(Gates) \cup Permutations(Events)
=============================================================================
