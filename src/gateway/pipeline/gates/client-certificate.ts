/** Checks that the client presented a certificate that the route allows (mTLS). */
import { refuse } from '../../../core/refusal.ts';
import type { CertificateGate } from './gate.ts';

/** Finds the name that the route allows. The TLS handshake verified the certificate already. */
export function createClientCertificateGate({
  names,
}: {
  /** The certificate must have one of these names; default: any certificate that the port's CAs issued. */
  readonly names?: readonly string[] | undefined;
}): CertificateGate {
  const allowed = names === undefined ? undefined : new Set(names);
  return {
    check({ client }) {
      if (client.certificate === undefined) return refuse('certificate_required', client.certificateEnd ?? 'no_certificate');
      const found = client.certificate.names.find((name) => allowed === undefined || allowed.has(name));
      // A certificate without a name identifies nobody.
      return found ?? refuse('certificate_required', 'certificate_not_allowed');
    },
  };
}
