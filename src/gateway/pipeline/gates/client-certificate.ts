/** Did the client show a certificate that the route lets in? (mTLS) */
import type { Exchange } from '../../../core/exchange.ts';
import { refuse } from '../../../core/refusal.ts';
import type { Verdict } from '../../../core/verdict.ts';
import type { Gate } from './gate.ts';

/** What the gate needs of its route. */
export interface ClientCertificateOptions {
  /** Names of which the certificate must hold one; left out: any that the port's authorities vouch for. */
  readonly names?: readonly string[] | undefined;
}

/** Builds the gate; it writes `facts.certificateName`. What the authorities say was settled in the handshake. */
export function createClientCertificateGate({ names }: ClientCertificateOptions): Gate {
  const allowed = names === undefined ? undefined : new Set(names);
  return {
    name: 'client-certificate',
    check({ client, facts }: Exchange): Verdict {
      if (client.certificate === undefined) return refuse('certificate_required', client.certificateEnd ?? 'no_certificate');
      const found = client.certificate.names.find((name) => allowed === undefined || allowed.has(name));
      // A certificate without a name is nobody's.
      if (found === undefined) return refuse('certificate_required', 'certificate_not_allowed');
      facts.certificateName = found;
      return undefined;
    },
  };
}
