---------------------------- MODULE ClaimStore ----------------------------
(* The entry of one event ID in the shared store, and the operations on it: src/state/redis/operations.ts and  *)
(* src/state/memory.ts. Each operation is atomic and returns the next entry and its result. *)
EXTENDS Naturals

\* "none", or a deliberate defect that a check must notice.
CONSTANT Mutation

Absent == [kind |-> "absent", token |-> 0]
Handled == [kind |-> "handled", token |-> 0]
Claimed(token) == [kind |-> "claimed", token |-> token]

\* The call can be sent again after its reply was lost: it is granted to its own token again.
Claim(entry, token) ==
  IF entry.kind = "absent" \/ entry = Claimed(token) \/ (Mutation = "claim takes over" /\ entry.kind = "claimed")
  THEN [entry |-> Claimed(token), result |-> "new"]
  ELSE [entry |-> entry, result |-> IF entry.kind = "handled" THEN "handled" ELSE "in-progress"]

\* An expired claim that nobody took is recorded all the same.
Confirm(entry, token) ==
  CASE Mutation = "confirm is skipped" -> [entry |-> entry, result |-> TRUE]
    [] entry.kind = "handled" -> [entry |-> entry, result |-> FALSE]
    [] entry.kind = "claimed" /\ entry.token # token /\ Mutation # "confirm by another holder" -> [entry |-> entry, result |-> FALSE]
    [] OTHER -> [entry |-> Handled, result |-> TRUE]

Release(entry, token) ==
  IF entry = Claimed(token) \/ (Mutation = "release by another holder" /\ entry.kind = "claimed")
  THEN [entry |-> Absent, result |-> TRUE]
  ELSE [entry |-> entry, result |-> FALSE]

Forget(entry) == [entry |-> Absent, result |-> entry.kind]
=============================================================================
