/** Libraries of Standard Webhooks, as receivers use them. */
import { Webhook } from 'standardwebhooks';
import { Webhook as SvixWebhook } from 'svix';
import type { Received } from '../app.ts';
import type { startGo, startPython } from './foreign.ts';

const toHeaders = ({ headers }: Received): Record<string, string> =>
  Object.fromEntries(Object.entries(headers).filter((entry): entry is [string, string] => typeof entry[1] === 'string'));

/** Verifies with one library; the text of the secret is what a receiver is given. */
export interface Verifier {
  readonly name: string;
  verify(received: Received, secret: string): Promise<boolean>;
}

function toVerifier(name: string, verify: (body: string, headers: Record<string, string>, secret: string) => unknown): Verifier {
  return {
    name,
    async verify(received, secret) {
      try {
        await verify(received.body.toString(), toHeaders(received), secret);
        return true;
      } catch {
        return false;
      }
    },
  };
}

function toForeignVerifier(name: string, speaker: ReturnType<typeof startGo>): readonly Verifier[] {
  if (speaker === undefined) return [];
  return [
    {
      name,
      async verify(received, secret) {
        const { body } = received;
        const question = {
          preset: 'standard-webhooks',
          action: 'verify',
          method: 'POST',
          url: 'https://hooks.example.com/',
          secret,
        };
        const { ok } = await speaker.ask({ ...question, headers: toHeaders(received), body: body.toString('base64') });
        return ok === true;
      },
    },
  ];
}

/** Those of npm, and those of PyPI and Go unless they are missing on this machine. */
export function toVerifiers(python: ReturnType<typeof startPython>, go: ReturnType<typeof startGo>): readonly Verifier[] {
  return [
    toVerifier('npm standardwebhooks', (body, headers, secret) => new Webhook(secret).verify(body, headers)),
    toVerifier('npm svix', (body, headers, secret) => new SvixWebhook(secret).verify(body, headers)),
    ...toForeignVerifier('PyPI standardwebhooks', python),
    ...toForeignVerifier('Go standard-webhooks', go),
  ];
}
