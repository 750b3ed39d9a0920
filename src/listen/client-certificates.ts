/** Reads the certificate that a TLS client showed, once for each connection. */
import type { Socket } from 'node:net';
import type { PeerCertificate, TLSSocket } from 'node:tls';
import type { ClientCertificate } from '../core/exchange.ts';

/** One alternative name; Node quotes it where it holds a comma, a quote or a control (CVE-2021-44532). */
const ALTERNATIVE_NAME = /(?:^|, )([A-Za-z ]+):("(?:[^"\\]|\\.)*"|[^,"]*)(?=, |$)/g;

/** The certificates of the open connections. */
export class ClientCertificates {
  readonly #bySocket = new WeakMap<Socket, ClientCertificate | undefined>();

  /** Undefined where there is none, or none that the authorities vouch for. */
  find(socket: Socket): ClientCertificate | undefined {
    if (!this.#bySocket.has(socket)) this.#bySocket.set(socket, read(socket as TLSSocket));
    return this.#bySocket.get(socket);
  }
}

function read(socket: TLSSocket): ClientCertificate | undefined {
  if (socket.authorized !== true) return undefined;
  const certificate = socket.getPeerCertificate();
  return certificate.raw === undefined ? undefined : { names: toCertificateNames(certificate), raw: certificate.raw };
}

/** Each name with its kind before it, so that a name of one kind is never taken for one of another. */
export function toCertificateNames({
  subject,
  subjectaltname = '',
}: Pick<PeerCertificate, 'subject' | 'subjectaltname'>): string[] {
  const names: string[] = [];
  for (const [, kind = '', value = ''] of subjectaltname.matchAll(ALTERNATIVE_NAME)) names.push(`${kind}:${unquote(value)}`);
  const { CN: commonName } = subject as { readonly CN?: string | readonly string[] };
  // Several are several answers to one question: none of them counts.
  if (typeof commonName === 'string') names.push(`CN:${commonName}`);
  return names;
}

function unquote(value: string): string {
  return value.startsWith('"') ? (JSON.parse(value) as string) : value;
}
