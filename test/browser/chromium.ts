/** A real Chromium without a window, that trusts the tests' certificates and no other name than theirs. */
import { execFileSync } from 'node:child_process';
import { hash, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core';

/** How it is started. */
export interface BrowserSetup {
  /** Certificates that are taken, PEM files. */
  readonly certificates: readonly string[];
  readonly proxy?: { readonly server: string; readonly username?: string; readonly password?: string };
}

/** Starts it. */
export function openBrowser({ certificates, proxy }: BrowserSetup): Promise<Browser> {
  const keys = certificates.map((file) =>
    hash('sha256', new X509Certificate(readFileSync(file)).publicKey.export({ type: 'spki', format: 'der' }), 'base64'),
  );
  return chromium.launch({
    executablePath: execFileSync('sh', ['-c', 'command -v chromium'], { encoding: 'utf8' }).trim(),
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
      `--ignore-certificate-errors-spki-list=${keys.join(',')}`,
      // Nothing leaves the machine.
      '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1',
    ],
    // Else it goes to loopback past every proxy.
    ...(proxy === undefined ? undefined : { proxy: { ...proxy, bypass: '<-loopback>' } }),
  });
}

/** What a user types when the browser asks for a password; undefined: he cancels. */
export type Typed = readonly [user: string, password: string] | undefined;

/** The browser's own prompts, answered one after the other. */
export interface Prompts {
  /** Realm and origin of each prompt so far. */
  readonly asked: readonly string[];
  /** What will be typed at the next ones. */
  readonly answers: Typed[];
}

/** Sits at the prompts of a page. */
export async function answerPrompts(context: BrowserContext, page: Page): Promise<Prompts> {
  const asked: string[] = [];
  const answers: Typed[] = [];
  const session = await context.newCDPSession(page);
  // A page that was closed meanwhile needs no answer.
  const gone = (): void => undefined;
  session.on('Fetch.authRequired', ({ requestId, authChallenge }) => {
    asked.push(`${authChallenge.source} ${authChallenge.scheme} ${authChallenge.realm}`);
    const typed = answers.shift();
    const authChallengeResponse =
      typed === undefined
        ? { response: 'CancelAuth' as const }
        : { response: 'ProvideCredentials' as const, username: typed[0], password: typed[1] };
    session.send('Fetch.continueWithAuth', { requestId, authChallengeResponse }).catch(gone);
  });
  session.on('Fetch.requestPaused', ({ requestId }) => {
    session.send('Fetch.continueRequest', { requestId }).catch(gone);
  });
  await session.send('Fetch.enable', { handleAuthRequests: true });
  return { asked, answers };
}
