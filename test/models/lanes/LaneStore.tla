---------------------------- MODULE LaneStore -----------------------------
(* The deliveries and the lane of one endpoint in the queue, and the operations of src/provider/queue/redis/lanes-script.ts. *)
(* Each operation is atomic and returns the next state and its reply. Times are relative: 0 is now or earlier.               *)
EXTENDS Naturals

CONSTANTS
  Events,
  MaxTime,      \* The longest delay.
  MaxAttempts,  \* After so many, a delivery is dead.
  Mutation      \* "none", or a deliberate defect that a check must notice.

Never == 99
Later(time) == IF time = Never \/ time = 0 THEN time ELSE time - 1

\* `attempt`: attempts made so far. `tries`: since the last replay.
NoDelivery == [state |-> "absent", attempt |-> 0, tries |-> 0, due |-> Never]

(* own: the token of the run that can take and settle. nb: not before. wk: woken since. wt: when the delayed job runs. *)
EmptyLane == [own |-> 0, nb |-> Never, wk |-> FALSE, wt |-> Never]
EmptyStore == [deliveries |-> [e \in Events |-> NoDelivery], lane |-> EmptyLane]

Waiting(s) == {e \in Events : s.deliveries[e].state = "waiting"}
Due(s) == {e \in Waiting(s) : s.deliveries[e].due = 0}
Smallest(set) == IF set = {} THEN Never ELSE CHOOSE x \in set : \A y \in set : x <= y
Head(s) == Smallest({s.deliveries[e].due : e \in Waiting(s)})

\* Whether a delivery that becomes due now needs a wake-up, because no other is on its way.
NeedsWake(s) ==
  CASE Head(s) = 0 -> FALSE
    [] s.lane.nb \in {Never, 0} -> TRUE
    [] OTHER -> Head(s) > s.lane.nb

Append(s, e) ==
  IF s.deliveries[e].state # "absent"
  THEN [next |-> s, result |-> "duplicate", wake |-> FALSE]
  ELSE [next |-> [s EXCEPT !.deliveries[e] = [state |-> "waiting", attempt |-> 0, tries |-> 0, due |-> 0]],
        result |-> "stored", wake |-> NeedsWake(s)]

Replay(s, e) ==
  IF s.deliveries[e].state \in {"absent", "waiting"}
  THEN [next |-> s, changed |-> 0, wake |-> FALSE]
  ELSE [next |-> [s EXCEPT !.deliveries[e].state = "waiting", !.deliveries[e].tries = 0, !.deliveries[e].due = 0],
        changed |-> 1, wake |-> NeedsWake(s)]

\* A run of the lane starts. With work, it owns the lane from now on.
Begin(s, token) ==
  LET woken == IF s.lane.wk THEN [s EXCEPT !.lane.wk = FALSE, !.lane.nb = Never] ELSE s
      pause == IF woken.lane.nb = Never THEN 0 ELSE woken.lane.nb
      head == Head(woken)
      at == IF pause < head THEN head ELSE pause
  IN
  CASE head = Never -> [next |-> woken, hasWork |-> FALSE, at |-> Never]
    [] at > 0 -> [next |-> [woken EXCEPT !.lane.wt = at], hasWork |-> FALSE, at |-> at]
    [] OTHER -> [next |-> [woken EXCEPT !.lane.own = token], hasWork |-> TRUE, at |-> 0]

IsOwner(s, token) == s.lane.own = token \/ Mutation = "settlement without the lane"

\* The due deliveries that the run does not have already.
Take(s, token, busy) ==
  IF s.lane.own = token THEN [isHeld |-> TRUE, taken |-> Due(s) \ busy] ELSE [isHeld |-> FALSE, taken |-> {}]

Ended(delivery, state, made) ==
  [delivery EXCEPT !.state = state, !.attempt = @ + made, !.tries = @ + made, !.due = Never]

Apply(delivery, kind, due) ==
  CASE kind = "delivered" -> Ended(delivery, "delivered", 1)
    [] kind = "dead" -> Ended(delivery, "dead", 1)
    [] kind = "skipped" -> Ended(delivery, "skipped", 0)
    [] kind = "retry" -> [delivery EXCEPT !.attempt = @ + 1, !.tries = @ + 1, !.due = due]
    [] kind = "postponed" -> [delivery EXCEPT !.due = due]

\* Whether the delivery is as it was taken: a settlement names the attempt that it settles.
IsCurrent(s, e, taken) ==
  \/ s.deliveries[e].state = "waiting" /\ s.deliveries[e].attempt = taken.attempt /\ s.deliveries[e].tries = taken.tries
  \/ Mutation = "settlement of another attempt" /\ s.deliveries[e].state # "absent"

(* `taken`: the delivery as it was when the run took it. `isEmpty`: nothing waits, and the lane has to run no more. *)
Settle(s, token, e, taken, kind, due) ==
  LET next == IF IsCurrent(s, e, taken) THEN [s EXCEPT !.deliveries[e] = Apply(taken, kind, due)] ELSE s IN
  IF ~IsOwner(s, token)
  THEN [next |-> s, isHeld |-> FALSE, isEmpty |-> FALSE]
  ELSE [next |-> next, isHeld |-> TRUE, isEmpty |-> Head(next) = Never /\ s.lane.nb = Never /\ ~s.lane.wk]

\* The run ends. `at`: when the lane has work again; `isScheduled`: a delayed job must be added for it.
Finish(s, token, notBefore) ==
  LET nb == IF s.lane.wk THEN Never ELSE notBefore
      ended == [s EXCEPT !.lane.wk = FALSE, !.lane.nb = nb]
      head == Head(ended)
      at == IF nb # Never /\ nb > head THEN nb ELSE head
  IN
  CASE s.lane.own # token -> [next |-> s, isHeld |-> FALSE, at |-> Never, isScheduled |-> FALSE]
    [] head = Never -> [next |-> ended, isHeld |-> TRUE, at |-> Never, isScheduled |-> FALSE]
    [] at = s.lane.wt \/ at = 0 -> [next |-> ended, isHeld |-> TRUE, at |-> at, isScheduled |-> FALSE]
    [] OTHER -> [next |-> [ended EXCEPT !.lane.wt = at], isHeld |-> TRUE, at |-> at, isScheduled |-> TRUE]

Wake(s) == [s EXCEPT !.lane.wk = TRUE, !.lane.nb = Never]

\* Time passes.
Tick(s) ==
  [deliveries |-> [e \in Events |-> [s.deliveries[e] EXCEPT !.due = Later(@)]],
   lane |-> [s.lane EXCEPT !.nb = Later(@), !.wt = Later(@)]]
=============================================================================
