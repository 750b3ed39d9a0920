import { describe, expect, test } from 'vitest';
import { findTarget } from '../../../../src/diagnostics/probe/client.ts';

const never = async (): Promise<readonly string[]> => {
  throw new Error('asked the network');
};
const find = (url: string, ownedHost?: string, addresses?: readonly string[]): ReturnType<typeof findTarget> =>
  findTarget(url, { ownedHost, resolve: addresses === undefined ? never : async () => addresses });

describe('a target', () => {
  test.each([
    'http://127.0.0.1:8080/hooks',
    'http://[::1]/',
    'http://10.1.2.3/',
    'http://172.31.0.1/',
    'https://192.168.0.1/',
    'http://100.64.0.1/',
    'http://[fd00::1]/',
    'http://[::ffff:127.0.0.1]/',
    'http://2130706433/',
  ])('is accepted at %s, without a DNS lookup', async (url) => {
    expect(await find(url)).toMatchObject({ isPrivate: true });
  });

  test.each([
    'http://8.8.8.8/',
    'http://[2606:4700::1]/',
    'http://[::ffff:8.8.8.8]/',
    'http://169.254.169.254/latest',
    'http://[fe80::1]/',
    'http://172.32.0.1/',
    'http://0.0.0.0/',
    'http://134744072/',
  ])('is rejected at %s, without a DNS lookup', async (url) => {
    const found = await find(url);
    expect(found).toMatchObject({ problem: expect.stringContaining('neither a loopback nor a private address') });
  });

  test('is accepted by name if all its addresses are private, and rejected if one is not', async () => {
    expect(await find('http://app.internal/', undefined, ['10.0.0.1', '::1'])).toMatchObject({ addresses: ['10.0.0.1', '::1'] });
    expect(await find('http://app.internal/', undefined, ['10.0.0.1', '8.8.8.8'])).toMatchObject({
      problem: expect.stringContaining('app.internal (8.8.8.8)'),
    });
  });

  test('is accepted at a public host that its owner names', async () => {
    expect(await find('https://Hooks.Example.com/', 'hooks.example.COM', ['8.8.8.8'])).toMatchObject({ isPrivate: false });
    expect(await find('https://8.8.8.8/', '8.8.8.8')).toMatchObject({ isPrivate: false });
    expect(await find('https://hooks.example.com/', 'example.com', ['8.8.8.8'])).toMatchObject({
      problem: expect.stringContaining('--yes-i-own-this hooks.example.com, not example.com'),
    });
  });

  test.each([
    ['hooks', 'is not an http or https URL'],
    ['ftp://127.0.0.1/', 'is not an http or https URL'],
    ['http://user:secret@127.0.0.1/', 'the URL contains a password'],
  ])('is not %s', async (url, problem) => {
    const found = await find(url);
    expect(found).toMatchObject({ problem: expect.stringContaining(problem) });
    expect(JSON.stringify(found)).not.toContain('secret@');
  });

  test('is not a name that does not resolve', async () => {
    expect(await find('http://nowhere.internal/')).toEqual({
      problem: expect.stringContaining('cannot resolve nowhere.internal'),
    });
  });
});
