/** HTTP/2 by h2spec, which sends what RFC 9113 and RFC 7541 forbid, frame by frame, and expects the error that they ask for. */
import { execFile } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, expect, test } from 'vitest';
import { H2SPEC, toBinFolder } from '../prepare/cluster-tools.ts';
import { toTlsFiles } from '../support/certificates.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { makeFolder, useApp, useAuthority } from '../support/fixtures.ts';
import { startGate, toRoute } from '../support/gate.ts';
import { sendDelivery } from '../support/memory-attacks.ts';

const PROGRAM = join(toBinFolder(), H2SPEC.name);
/** More than enough for a busy machine; each exception by silence takes all of it. */
const CASE_SECONDS = 4;
const CLOSED_STREAM = 'nghttp2 ignores frames on a closed stream instead of reporting them; none reaches the pipeline';
const NO_PRIORITIES = 'nghttp2 ignores PRIORITY, because RFC 9113 §5.3.2 removed priorities';
/** Each case that fails, and why it may. A case that is not in this list must pass, and one in this list must fail. */
const EXCEPTIONS: Readonly<Record<string, string>> = {
  'http2/5.1 closed: Sends a DATA frame after sending RST_STREAM frame': CLOSED_STREAM,
  'http2/5.1 closed: Sends a HEADERS frame after sending RST_STREAM frame': CLOSED_STREAM,
  'http2/5.1 closed: Sends a DATA frame': CLOSED_STREAM,
  'http2/5.1 closed: Sends a HEADERS frame': CLOSED_STREAM,
  'http2/5.1.1 Sends stream identifier that is numerically smaller than previous':
    'nghttp2 takes an identifier below the latest for a closed stream, and ignores its frames; the request never starts',
  'http2/5.3.1 Sends PRIORITY frame that depend on itself': NO_PRIORITIES,
  'http2/6.3 Sends a PRIORITY frame with 0x0 stream identifier': NO_PRIORITIES,
  'http2/6.7 Sends a PING frame with ACK':
    'Node closes the connection on an acknowledgement of a PING that it did not send: stricter than required',
  'http2/6.9.1 Sends multiple WINDOW_UPDATE frames increasing the flow control window to above 2^31-1 on a stream':
    'Node closes the connection, although RFC 9113 §6.9.1 requires only the stream to end: stricter than required',
};

/** The names of all cases in h2spec's JUnit report. */
interface Cases {
  readonly passed: readonly string[];
  readonly failed: readonly string[];
}

function readCases(file: string): Cases {
  const cases = readFileSync(file, 'utf8').matchAll(
    /<testcase package="([^"]*)" classname="([^"]*)"[^>]*>\s*(<(?:error|failure))?/g,
  );
  const [passed, failed]: [string[], string[]] = [[], []];
  for (const [, section, title = '', failure] of cases) {
    const name = `${section} ${title.replaceAll('&#34;', '"').replaceAll('&#39;', "'")}`;
    (failure === undefined ? passed : failed).push(name);
  }
  return { passed, failed };
}

/** Resolves when h2spec ended: its status says only that a case failed. */
function runH2spec(port: number, report: string): Promise<void> {
  const options = ['--timeout', String(CASE_SECONDS), '--junit-report', report];
  const args = ['--host', '127.0.0.1', '--port', String(port), '--tls', '--insecure', '--strict', ...options];
  return new Promise((resolve) => void execFile(PROGRAM, args, { maxBuffer: 16_000_000 }, () => resolve()));
}

const authority = useAuthority();
const pair = authority.issue('local', 'DNS:localhost,IP:127.0.0.1');
const app = useApp();
/** A frame for a stream whose response is still to come must not find the stream closed already, on a busy machine either. */
const RESPONSE_DELAY_MS = 100;
beforeEach(() => {
  app.handler = (_request, response) => void setTimeout(() => response.end('handled'), RESPONSE_DELAY_MS);
});

test.skipIf(!existsSync(PROGRAM))(
  'passes every case of h2spec that is not a listed exception, and fails each listed one',
  { timeout: 120_000 },
  async () => {
    const tls = { certFile: 'tls.crt', keyFile: 'tls.key' };
    const open = { name: 'open', match: { pathPrefix: '/' }, upstream: `http://127.0.0.1:${app.port}`, allow: 'anyone' };
    const routes = [open, toRoute(app.port)];
    const gate = await startGate({ listen: { address: '127.0.0.1:0', tls }, routes }, undefined, toTlsFiles(pair));
    try {
      const report = join(makeFolder(), 'h2spec.xml');
      await runH2spec(gate.port, report);
      const { passed, failed } = readCases(report);
      expect([...failed].sort()).toEqual(Object.keys(EXCEPTIONS).sort());
      expect(passed).toHaveLength(137);
      expect(await sendDelivery(gate.port, makeDelivery(), true)).toBe(200);
      expect(gate.logText()).not.toContain('"level":"error"');
    } finally {
      await gate.stop();
    }
  },
);
