/** Admitted requests without the gates that would admit them, for tests of what comes after. */
import { type Admitted, admit } from '../../src/core/admitted.ts';
import type { Clock } from '../../src/core/clock.ts';
import type { ClaimedEvent } from '../../src/core/event.ts';
import { HeaderFields } from '../../src/core/head.ts';
import type { Client, ParsedHead } from '../../src/core/request.ts';
import { makePauseOwner } from './pauses.ts';

/** What a test may want to be otherwise. */
export interface AdmittedOptions {
  readonly method?: string;
  readonly path?: string;
  /** Raw pairs. */
  readonly headers?: readonly string[];
  readonly body?: Buffer | string;
  readonly client?: Partial<Client>;
  readonly user?: string;
  readonly claimed?: Partial<ClaimedEvent>;
  /** Of its pauses. */
  readonly clock?: Clock;
}

/** A POST with a body from an untrusted peer, to begin with. */
export function makeAdmitted(options: AdmittedOptions = {}): Admitted {
  const { method = 'POST', path = '/hooks/billing', headers = ['Host', 'app.example'], user, claimed } = options;
  const body = Buffer.from(options.body ?? '{}');
  const head: ParsedHead = {
    requestId: '00000000-0000-4000-8000-000000000001',
    method,
    client: {
      address: '203.0.113.9',
      peer: '203.0.113.9',
      viaTrustedProxy: false,
      viaIdentityProxy: false,
      scheme: 'http',
      ...options.client,
    },
    receivedAt: 0,
    startedAt: 0,
    target: { raw: path, path, query: undefined, ambiguities: [] },
    headers: new HeaderFields(headers),
    body: {
      ...makePauseOwner(options.clock),
      declaredLength: body.length,
      received: body.length,
      isCheapToDrain: true,
      read: async () => body,
      open: () => body,
      free: () => undefined,
      discard: () => undefined,
    },
  };
  const event = { id: undefined, timestamp: undefined, keyName: 'current', body };
  return admit({
    head,
    route: 'billing',
    sender: { user: user === undefined ? undefined : { name: user }, certificateName: undefined },
    claimed: claimed && {
      event,
      claim: undefined,
      isStale: false,
      isUnchecked: false,
      expiresAt: Number.POSITIVE_INFINITY,
      ...claimed,
    },
    destination: undefined,
    observed: undefined,
    body,
  });
}
