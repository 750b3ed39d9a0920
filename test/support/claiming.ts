/** A claim gate as the pipeline runs it, with the grant that each event got. */
import type { ClaimGrant, VerifiedEvent } from '../../src/core/event.ts';
import { HeaderFields } from '../../src/core/head.ts';
import { Refusal } from '../../src/core/refusal.ts';
import type { ParsedHead } from '../../src/core/request.ts';
import type { ClaimGate } from '../../src/gateway/pipeline/gates/gate.ts';

/** A verified event at the gate. */
export interface Arrived {
  readonly head: ParsedHead;
  readonly event: VerifiedEvent;
  /** Undefined as long as the gate has not granted it. */
  grant?: ClaimGrant;
}

/** Makes an event arrive. */
export function arriveAt(requestId: string, startedAt: number, id: string, body: string): Arrived {
  const head = {
    requestId,
    startedAt,
    receivedAt: startedAt,
    method: 'POST',
    target: { raw: '/' },
    headers: new HeaderFields([]),
    client: { address: '192.0.2.1', viaTrustedProxy: false, viaIdentityProxy: false, scheme: 'https' },
  } as unknown as ParsedHead;
  return { head, event: { id, timestamp: 0, keyName: 'k', body: Buffer.from(body) } };
}

/** The refusal; undefined where the event was granted. */
export async function claimAt(gate: ClaimGate, arrived: Arrived): Promise<Refusal | undefined> {
  const claimed = await gate.claim(arrived.event, arrived.head);
  if (claimed instanceof Refusal) return claimed;
  arrived.grant = claimed;
  return undefined;
}
