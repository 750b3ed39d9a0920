import { expect, test } from 'vitest';
import type { Admitted } from '../../../../src/core/admitted.ts';
import { systemClock } from '../../../../src/core/clock.ts';
import { SidegateError } from '../../../../src/core/errors.ts';
import type { ClientResponse } from '../../../../src/core/request.ts';
import type { RequestPolicy } from '../../../../src/gateway/upstream/forwarder.ts';
import { createInbox } from '../../../../src/provider/inbox/inbox-forwarder.ts';
import { MemoryQueue } from '../../../support/provider/memory-queue.ts';

test.each([
  ['queue_full', 'overloaded'],
  ['queue_busy', 'overloaded'],
  ['queue_unavailable', 'store_unavailable'],
] as const)('refuses with the store error %s as %s', async (code, refusal) => {
  const queue = new MemoryQueue();
  queue.failure = new SidegateError('system', code, 'a detail');
  const policy = { toUpstreamHeaders: () => [] } as unknown as RequestPolicy;
  const options = { route: 'billing', stores: true, trustsUnsignedId: false, repeatsBytes: false, status: 202 };
  const inbox = createInbox(options, policy, { clock: systemClock, queue, retention: 1_000, isUsed: () => true });
  const admitted = { head: { method: 'POST', target: { raw: '/' } }, body: Buffer.from('{}') } as unknown as Admitted;
  const outcome = await inbox.forwarder.forward(admitted, {} as ClientResponse, undefined);
  expect(outcome).toMatchObject({ kind: 'failed', refusal: { code: refusal, detail: 'a detail' } });
});
