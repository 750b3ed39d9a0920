/** Holds by compiling: the stages of a request cannot be skipped. `npm run typecheck` runs it. */
import type { ServerResponse } from 'node:http';
import type { Admitted } from '../../src/core/admitted.ts';
import { acknowledge, type Refusal, refuse } from '../../src/core/refusal.ts';
import type { ParsedHead } from '../../src/core/request.ts';
import type { ClaimGate } from '../../src/gateway/pipeline/gates/gate.ts';
import type { Forwarder } from '../../src/gateway/upstream/forwarder.ts';

export function tryToForward(forwarder: Forwarder, head: ParsedHead, response: ServerResponse): void {
  // @ts-expect-error a ParsedHead is no Admitted
  void forwarder.forward(head, response);
  const looksAlike = {
    head,
    route: 'billing',
    sender: { user: undefined, certificateName: undefined },
    claimed: undefined,
    destination: undefined,
    observed: undefined,
    body: Buffer.alloc(0),
  };
  // @ts-expect-error nor is an object that looks like one: the proof is missing
  void forwarder.forward(looksAlike, response);
  // @ts-expect-error and the proof cannot be named
  const forged: Admitted = { ...looksAlike, proof: true };
  void forwarder.forward(forged, response);
}

export function tryToClaim(gate: ClaimGate, head: ParsedHead): void {
  // @ts-expect-error what nobody verified claims no id
  void gate.claim(head, head);
}

export function tryToPassAsRefusal(): Refusal {
  const { code, reason } = refuse('in_progress', 'in_progress');
  // @ts-expect-error `instanceof` would take an object literal for a pass
  return { code, reason, detail: undefined, allow: undefined, retryAfterSeconds: undefined, reply: undefined };
}

export function tryToAcknowledge(): void {
  // @ts-expect-error a 2xx needs a proof
  refuse('duplicate', 'duplicate');
  // @ts-expect-error an ID that was handled with other content proves nothing
  acknowledge({ state: 'handled', sameContent: false, reason: 'duplicate' });
  // @ts-expect-error a response that the caller chose cannot be sent with an error
  refuse('in_progress', 'in_progress', { reply: { status: 200, contentType: 'text/plain', body: '' } });
}
