/** Verifies a server's certificate chain against trusted CAs, as the API server will do later. */
import { X509Certificate } from 'node:crypto';
import type { EpochMilliseconds } from '../../core/clock.ts';

const PEM = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;
/** Maximum number of intermediates between a server's certificate and its CA. */
const MAX_CHAIN_LENGTH = 10;

/** The certificates in PEM text, in order; blocks that cannot be parsed are skipped. */
export function readCertificates(pem: string): X509Certificate[] {
  return (pem.match(PEM) ?? []).flatMap((block) => {
    try {
      return [new X509Certificate(block)];
    } catch {
      return [];
    }
  });
}

/** Undefined if the chain is valid; otherwise the reason. `chain`: the server's certificate first. */
export function findChainProblem(
  chain: readonly X509Certificate[],
  trusted: readonly X509Certificate[],
  name: string | undefined,
  now: EpochMilliseconds,
): string | undefined {
  const [server, ...intermediates] = chain;
  if (server === undefined) return 'there is no certificate yet';
  if (Date.parse(server.validTo) <= now) return `the certificate expired on ${server.validTo}`;
  if (Date.parse(server.validFrom) > now) return `the certificate is not valid before ${server.validFrom}`;
  if (name !== undefined && server.checkHost(name) === undefined) return `the certificate is not for ${name}`;
  if (trusted.length === 0) return 'the caBundle of the webhook configuration is empty';
  return leadsTo(server, intermediates, trusted, now)
    ? undefined
    : 'the caBundle of the webhook configuration does not contain its CA';
}

function leadsTo(
  server: X509Certificate,
  intermediates: readonly X509Certificate[],
  trusted: readonly X509Certificate[],
  now: EpochMilliseconds,
): boolean {
  let end = server;
  for (let length = 0; length < MAX_CHAIN_LENGTH; length++) {
    const last = end;
    if (trusted.some((root) => root.raw.equals(last.raw) || (isValid(root, now) && isIssuedBy(last, root)))) return true;
    const issuer = intermediates.find((each) => !each.raw.equals(last.raw) && isValid(each, now) && isIssuedBy(last, each));
    if (issuer === undefined) return false;
    end = issuer;
  }
  return false;
}

function isIssuedBy(certificate: X509Certificate, issuer: X509Certificate): boolean {
  return certificate.checkIssued(issuer) && certificate.verify(issuer.publicKey);
}

function isValid({ validFrom, validTo }: X509Certificate, now: EpochMilliseconds): boolean {
  return Date.parse(validFrom) <= now && now < Date.parse(validTo);
}
