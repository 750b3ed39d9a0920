----------------------------- MODULE LaneStore -----------------------------
(* What the operations of the queue do with one delivery (src/provider/queue/sql). Each is atomic.                        *)
(* Times are relative: 0 is now or earlier, 1 is later.                                                                   *)
EXTENDS Naturals

CONSTANT Mutation \* "none", or a deliberate defect that a check must notice.

Never == 99
Later(time) == IF time = 1 THEN 0 ELSE time

\* `attempt`: attempts made so far. `tries`: since the last replay. `replay`: how often it was replayed.
NoDelivery == [state |-> "absent", attempt |-> 0, tries |-> 0, replay |-> 0, due |-> Never]
Appended == [NoDelivery EXCEPT !.state = "waiting", !.due = 0]

\* One that waits keeps its place in the schedule.
Retried(delivery) ==
  CASE delivery.state = "absent" -> delivery
    [] delivery.state = "waiting" -> [delivery EXCEPT !.due = 0]
    [] OTHER -> [delivery EXCEPT !.state = "waiting", !.tries = 0, !.replay = @ + 1, !.due = 0]

Canceled(delivery) == IF delivery.state = "waiting" THEN [delivery EXCEPT !.state = "skipped", !.due = Never] ELSE delivery

Made(kind) == IF kind \in {"delivered", "dead", "retry"} THEN 1 ELSE 0
Ended(delivery, kind) ==
  [delivery EXCEPT !.state = kind, !.attempt = @ + Made(kind), !.tries = @ + Made(kind), !.due = Never]

\* An attempt from before a replay that does not succeed ends nothing: the next one follows at once.
Apply(delivery, taken, kind) ==
  CASE kind # "delivered" /\ delivery.replay # taken.replay /\ Mutation # "settlement from before a replay" ->
         [delivery EXCEPT !.attempt = @ + Made(kind)]
    [] kind \in {"delivered", "dead", "skipped"} -> Ended(delivery, kind)
    [] kind = "retry" -> [delivery EXCEPT !.attempt = @ + 1, !.tries = @ + 1, !.due = 1]
    [] kind = "postponed" -> [delivery EXCEPT !.due = 0]

\* The number of the attempt is the fence. A 2xx counts, too, if the delivery was skipped meanwhile.
IsCurrent(delivery, taken, kind) ==
  /\ delivery.attempt = taken.attempt
  /\ delivery.state = "waiting" \/ (delivery.state = "skipped" /\ kind = "delivered")

\* Only the owner of the lane decides what happens next, but a 2xx is a fact.
IsApplied(delivery, isOwner, taken, kind) ==
  \/ /\ IsCurrent(delivery, taken, kind)
     /\ isOwner \/ kind = "delivered" \/ Mutation = "settlement without the lane"
  \/ Mutation = "settlement without the fence" /\ delivery.state # "absent"

Settled(delivery, isOwner, taken, kind) ==
  IF IsApplied(delivery, isOwner, taken, kind) THEN Apply(delivery, taken, kind) ELSE delivery
=============================================================================
