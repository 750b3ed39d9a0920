/** Admitted requests without the gates that would admit them, for tests of what comes after. */
import { type Admitted, admit } from '../../src/core/admitted.ts';
import type { Client, Exchange, Facts } from '../../src/core/exchange.ts';
import { HeaderFields } from '../../src/core/headers.ts';

/** What a test may want to be otherwise. */
export interface AdmittedOptions {
  readonly method?: string;
  readonly path?: string;
  /** Raw pairs. */
  readonly headers?: readonly string[];
  readonly body?: Buffer | string;
  readonly client?: Partial<Client>;
  readonly facts?: Facts;
}

/** A POST with a body from an untrusted peer, to begin with. */
export function makeAdmitted(options: AdmittedOptions = {}): Admitted {
  const { method = 'POST', path = '/hooks/billing', headers = ['Host', 'app.example'], facts = {} } = options;
  const body = Buffer.from(options.body ?? '{}');
  const exchange: Exchange = {
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
      declaredLength: body.length,
      received: body.length,
      isCheapToDrain: true,
      read: async () => body,
      open: () => body,
      free: () => undefined,
      discard: () => undefined,
    },
    facts,
  };
  return admit(exchange, 'billing', body);
}
