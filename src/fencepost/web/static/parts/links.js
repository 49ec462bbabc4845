// The addresses of pages. A browser takes `.` and `..` for folders, so these two are in the query.
const segment = (folder, name, text) =>
  text === "." || text === ".." ? `${folder}?${name}=${encodeURIComponent(text)}` : folder + encodeURIComponent(text);

export const txnAddress = (id) => segment("/txn/", "transactional_id", id);
export const partitionAddress = (topic, partition) => `/partition/${encodeURIComponent(topic)}/${partition}`;
export const groupAddress = (id) => segment("/group/", "group_id", id);
export const errorAddress = (code) => `/error/${encodeURIComponent(code)}`;
