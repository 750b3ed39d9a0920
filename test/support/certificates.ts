/** Certificates made by openssl. */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** Files of a certificate and its key. */
export interface Pair {
  readonly cert: string;
  readonly key: string;
}

/** The contents of both files, as servers and clients of TLS take them. */
export function readPair({ cert, key }: Pair): { readonly cert: Buffer; readonly key: Buffer } {
  return { cert: readFileSync(cert), key: readFileSync(key) };
}

/** Both files under the names that `certFile: tls.crt, keyFile: tls.key` refers to, for the folder of a gate's config. */
export function toTlsFiles({ cert, key }: Pair): Record<'tls.crt' | 'tls.key', string> {
  return { 'tls.crt': readFileSync(cert, 'utf8'), 'tls.key': readFileSync(key, 'utf8') };
}

/** An authority and what it signs. */
export interface Authority {
  /** File of its own certificate. */
  readonly ca: string;
  /** Writes `name`.crt and `name`.key; `altNames` as openssl has them, for example `DNS:localhost`. */
  issue(name: string, altNames: string, days?: number, newKey?: readonly string[]): Pair;
  /** Counts a certificate among the revoked from the next list on. */
  revoke(pair: Pair): void;
  /** Writes a revocation list to a file and gives its text; `options` as `openssl ca -gencrl` has them. */
  list(file: string, ...options: readonly string[]): string;
}

const EC = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];

/** Makes an authority in a folder. `newKey`: as `openssl req` has it. */
export function makeAuthority(folder: string, name: string, newKey = EC): Authority {
  const file = (base: string, ending: string): string => join(folder, `${base}.${ending}`);
  const openssl = (...args: string[]): unknown => execFileSync('openssl', args, { stdio: 'ignore' });
  const [ca, caKey] = [file(name, 'crt'), file(name, 'key')];
  openssl('req', '-x509', ...newKey, '-nodes', '-days', '2', '-subj', `/CN=${name}`, '-keyout', caKey, '-out', ca);
  const [config, database] = [file(name, 'cnf'), file(name, 'db')];
  const names = `database = ${database}\ncertificate = ${ca}\nprivate_key = ${caKey}`;
  writeFileSync(database, '');
  writeFileSync(config, `[ca]\ndefault_ca = own\n[own]\n${names}\ndefault_md = sha256\ndefault_crl_days = 1\n`);
  return {
    ca,
    issue(base, altNames, days = 2, newKey = EC) {
      const [cert, key, request, extensions] = [file(base, 'crt'), file(base, 'key'), file(base, 'csr'), file(base, 'ext')];
      writeFileSync(extensions, `subjectAltName=${altNames}`);
      openssl('req', ...newKey, '-nodes', '-subj', `/CN=${base}`, '-keyout', key, '-out', request);
      const signed = ['-CA', ca, '-CAkey', caKey, '-CAcreateserial', '-days', String(days), '-extfile', extensions];
      openssl('x509', '-req', '-in', request, ...signed, '-out', cert);
      return { cert, key };
    },
    revoke({ cert }) {
      openssl('ca', '-config', config, '-revoke', cert);
    },
    list(out, ...options) {
      openssl('ca', '-config', config, '-gencrl', '-out', out, ...options);
      return readFileSync(out, 'utf8');
    },
  };
}

/** Makes a signer below an intermediate authority below a root; each of the two has the extension of its position. */
export function makeChain(folder: string, [signer, intermediate]: readonly [string, string]): Record<'root' | 'bundle', string> {
  const openssl = (...args: string[]): unknown => execFileSync('openssl', args, { stdio: 'ignore', cwd: folder });
  openssl('req', '-x509', ...EC, '-days', '2', '-subj', '/CN=chain-root', '-keyout', 'chain-root.key', '-out', 'chain-root.crt');
  const issue = (name: string, issuer: string, extensions: string): string => {
    writeFileSync(join(folder, `${name}.ext`), extensions);
    openssl('req', ...EC, '-subj', `/CN=${name}`, '-keyout', `${name}.key`, '-out', `${name}.csr`);
    const by = ['-CA', `${issuer}.crt`, '-CAkey', `${issuer}.key`, '-CAcreateserial', '-days', '2', '-extfile', `${name}.ext`];
    openssl('x509', '-req', '-in', `${name}.csr`, ...by, '-out', `${name}.crt`);
    return readFileSync(join(folder, `${name}.crt`), 'utf8');
  };
  const middle = issue('chain-middle', 'chain-root', `basicConstraints=critical,CA:true\n${intermediate}=ASN1:NULL`);
  const leaf = issue('chain-leaf', 'chain-middle', `basicConstraints=CA:false\n${signer}=ASN1:NULL`);
  const key = readFileSync(join(folder, 'chain-leaf.key'), 'utf8');
  return { root: readFileSync(join(folder, 'chain-root.crt'), 'utf8'), bundle: `${key}${leaf}${middle}` };
}
