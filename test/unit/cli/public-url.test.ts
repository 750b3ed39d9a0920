import { expect, onTestFinished, test, vi } from 'vitest';
import { readPublicUrl } from '../../../src/cli/sender.ts';
import type { WebhookConfig } from '../../../src/config/schema/config.ts';

test('the user and password of a URL must be a part of one, as for a gate, and are not shown', async () => {
  onTestFinished(() => void vi.unstubAllEnvs());
  const webhook = { publicUrl: 'https://hooks.example.com', urlCredentials: { env: 'CREDENTIALS' } } as WebhookConfig;
  vi.stubEnv('CREDENTIALS', 'user:p%40ss');
  expect(await readPublicUrl(webhook)).toBe('https://user:p%40ss@hooks.example.com');
  for (const text of ['user:p@ss', 'user:p/ss', 'user:p?ss', 'user:p ss', 'user:pß']) {
    vi.stubEnv('CREDENTIALS', text);
    const error = await readPublicUrl(webhook).catch(String);
    expect(error).toContain('urlCredentials: the text cannot be the user and password of a URL; write user:password exactly as');
    expect(error).not.toContain(text);
  }
});
