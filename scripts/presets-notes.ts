/** Notes and recipes of docs/presets.md for senders of software development, work, media and voice. */

/** Notes on senders that have a preset. */
export const TOOL_NOTES = `- **Clerk, incident.io, Lithic, OpenAI, Render, Replicate, Resend, Stytch, Supabase** sign as Standard Webhooks or Svix describe. These presets only add the right hints about keys, and the sender's behavior; \`standard-webhooks\` and \`svix\` verify the same
  signatures. **Brex** too, but its secret has no prefix.
- **Bitbucket, Gitea, Forgejo, Gogs, Sentry, Snyk, Scrapfly, Cursor** name the kind of event in a header that is not signed. An app must check that the body fits that kind.
- **Buildkite, Cloudflare Stream, Courier, Frame.io, Pylon, Retell, Statsig, Tailscale** sign a time but no ID. A retry with a new time reaches the app again, unless you name an ID: \`id: { json: $.run_id }\`.
- **Telegram, Okta, Auth0, RingCentral, Hugging Face, Vapi, Cloudflare notifications** sign nothing: they send a secret in a header, which authenticates the sender but not the body. Hugging Face, Vapi and Cloudflare send no ID, so their routes need \`id\` or \`dedup: off\`.
`;

/** Senders without a preset, and how to verify them. */
export const TOOL_RECIPES = `These senders have no preset, because nothing independent confirms how they sign, or because they do not sign:

- **Lob** signs the time and the body, but its document does not say in which unit the time is. Others have seen milliseconds; if deliveries are rejected for their time, set \`unit: s\`. [\`explain\`](explain.md) reports which one a delivery has.

\`\`\`yaml
routes:
  - name: lob
    match: { path: /hooks/lob }
    upstream: http://127.0.0.1:3000
    webhook:
      scheme: custom
      custom:
        signature: { header: Lob-Signature, encoding: hex, forms: [{ algorithm: hmac-sha256 }] }
        signed: [timestamp, body]
        separator: "."
        timestamp: { header: Lob-Signature-Timestamp, unit: ms }
        id: { json: $.id }
      keys: [{ name: current, secret: { env: LOB_SECRET } }]
\`\`\`

- **Ramp** sends \`X-Ramp-Signature\`, an HMAC-SHA256 of the body, but its document does not name the encoding. Others have seen hex: as above, with \`signed: [body]\`, and without \`timestamp\`.
- **Merge** writes \`X-Merge-Webhook-Signature\` in base64url with padding, which \`encoding: base64url\` does not accept.
- **A token in a header**, such as that of Buildkite, which authenticates the sender but not the body:

\`\`\`yaml
routes:
  - name: buildkite
    match: { path: /hooks/buildkite }
    upstream: http://127.0.0.1:3000
    webhook:
      scheme: custom
      custom:
        signature: { header: X-Buildkite-Token, encoding: text, forms: [{ algorithm: token }] }
        signed: []
      dedup: off
      keys: [{ name: current, secret: { env: BUILDKITE_TOKEN } }]
\`\`\`

- **Azure DevOps** and **Pipedrive** use HTTP Basic: \`basic\` with \`scheme: unsigned\`.
- **Docker Hub**, **Statuspage** and **Jotform** neither sign nor send credentials, so nothing can verify them: let the app ask the sender's API for what changed.
- **npm** no longer sends hooks.
`;
